"""TensorScatter: new rows written into a cache of keys or values."""

from __future__ import annotations

from ortisan.registry.axes import normalize_axis
from ortisan.registry.builder import known_dims
from ortisan.registry.dims import Dim
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import CacheWrite, Expand
from ortisan.registry.ops.cache import CacheMode
from ortisan.registry.refusal import Refused


@lowers("TensorScatter", since=24, attributes=["axis", "mode"])
def tensor_scatter(site: Site) -> Value:
    past, update, starts = site.need(0), site.need(1), site.optional(2)
    mode: CacheMode = site.attribute("mode", "linear")
    if mode not in ("linear", "circular"):
        raise Refused(f"TensorScatter mode '{mode}' is not defined")
    axis = normalize_axis(site.attribute("axis", -2), len(past.shape))
    if axis == 0:
        raise Refused("TensorScatter along the batch axis is not defined")
    if starts is None:
        return site.builder.add(CacheWrite(axis, mode), past, update)
    start = _common_start(site, starts) if starts.shape == past.shape[:1] else None
    if start is not None:
        return site.builder.add(CacheWrite(axis, mode, start=start), past, update)
    return site.builder.add(CacheWrite(axis, mode), past, update, starts)


def _common_start(site: Site, starts: Value) -> Dim | None:
    """The row at which all batches begin, when it is one dim, expanded."""
    node = site.builder.producer(starts)
    one = node.inputs[0] if node is not None and isinstance(node.op, Expand) else starts
    if one.data is None or one.data.size != 1:
        return None
    return known_dims(one, "the start of TensorScatter")[0]
