"""Gathers by indices, and OneHot."""

from __future__ import annotations

from ortisan.registry.axes import normalize_axis
from ortisan.registry.builder import known_dims
from ortisan.registry.dtypes import DType
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import Arange, DynamicSlice, Gather, GatherNd, IndexSelect
from ortisan.registry.refusal import Refused


@lowers("Gather", attributes=["axis"])
def gather(site: Site) -> Value:
    x = site.need(0)
    axis = normalize_axis(site.attribute("axis", 0), len(x.shape))
    return site.builder.add(IndexSelect(axis), x, site.need(1))


@lowers("GatherElements", since=11, attributes=["axis"])
def gather_elements(site: Site) -> Value:
    x = site.need(0)
    axis = normalize_axis(site.attribute("axis", 0), len(x.shape))
    return site.builder.add(Gather(axis), x, site.need(1))


@lowers("GatherND", since=11, attributes=["batch_dims"])
def gather_nd(site: Site) -> Value:
    return site.builder.add(GatherNd(site.attribute("batch_dims", 0)), site.need(0), site.need(1))


@lowers("OneHot", since=9, attributes=["axis"])
def one_hot(site: Site) -> Value:
    """Compares each index with 0..depth-1; negative indices count from the end."""
    b, indices, values = site.builder, site.need(0), site.need(2)
    depth = known_dims(site.need(1), "the depth of OneHot")[0]
    if not indices.dtype.is_integer:
        raise Refused(f"OneHot indices are {indices.dtype.value}")
    if values.shape != (2,):
        raise Refused(f"the values of OneHot are {values.type}, and not two numbers")
    rank = len(indices.shape) + 1
    axis = normalize_axis(site.attribute("axis", -1), rank)
    wide = b.cast(indices, DType.INT64)
    size = b.add(Arange(depth, 1, 1, DType.INT64))
    wrapped = b.elementwise(
        "WHERE", b.elementwise("LT", wide, b.number(0, DType.INT64)), b.elementwise("ADD", wide, size), wide
    )
    placed = b.reshape(wrapped, (*indices.shape[:axis], 1, *indices.shape[axis:])) if rank > 1 else wrapped
    steps = b.reshape(b.add(Arange(0, 1, depth, DType.INT64)), (depth if i == axis else 1 for i in range(rank)))
    off, on = (b.add(DynamicSlice((i,), (1,), (1,)), values) for i in range(2))
    return b.elementwise("WHERE", b.elementwise("EQ", placed, steps), on, off)
