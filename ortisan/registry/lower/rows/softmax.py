"""Softmax of either definition, and Hardmax."""

from __future__ import annotations

from collections.abc import Callable

from ortisan.registry.axes import normalize_axis
from ortisan.registry.dims import product
from ortisan.registry.dtypes import DType
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import Arange, ArgReduce, Softmax


def _softmax_flattened(log: bool) -> Callable[[Site], Value]:
    def lower(site: Site) -> Value:
        b, x = site.builder, site.need(0)
        axis = normalize_axis(site.attribute("axis", 1), len(x.shape), upper=len(x.shape))
        flat = b.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))
        return b.reshape(b.add(Softmax(1, log), flat), x.shape)

    return lower


def _softmax(log: bool) -> Callable[[Site], Value]:
    def lower(site: Site) -> Value:
        x = site.need(0)
        axis = normalize_axis(site.attribute("axis", -1), len(x.shape))
        return site.builder.add(Softmax(axis, log), x)

    return lower


for _op_type, _log in (("Softmax", False), ("LogSoftmax", True)):
    lowers(_op_type, since=1, until=11, attributes=["axis"])(_softmax_flattened(_log))
    lowers(_op_type, since=13, attributes=["axis"])(_softmax(_log))


@lowers("Hardmax", since=13, attributes=["axis"])
def hardmax(site: Site) -> Value:
    b, x = site.builder, site.need(0)
    rank = len(x.shape)
    axis = normalize_axis(site.attribute("axis", -1), rank)
    best = b.add(ArgReduce("max", axis, keepdim=True), x)
    steps = b.add(Arange(0, 1, x.shape[axis], DType.INT64))
    along = b.reshape(steps, (x.shape[axis] if i == axis else 1 for i in range(rank)))
    return b.cast(b.elementwise("EQ", along, best), x.dtype)
