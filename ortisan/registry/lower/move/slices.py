"""Slice: bounds that may be negative, beyond the end, or dims."""

from __future__ import annotations

from ortisan.registry.axes import normalize_axis
from ortisan.registry.builder import Builder, known_dims, known_ints
from ortisan.registry.dims import Dim, ceil_div, is_static, maximum, minimum, settle
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import DynamicSlice
from ortisan.registry.refusal import Refused

_OPEN_END = 2**31 - 1


def _from_front(bound: Dim, dim: Dim) -> Dim:
    """A slice bound, not clamped: negative ones count from the end of the dim."""
    if is_static(bound):
        if abs(bound) >= _OPEN_END:
            return dim if bound > 0 else -1
        return settle(dim + bound) if bound < 0 else bound
    if bound.is_nonnegative or settle(bound - dim) == 0:
        return bound
    if settle(-bound).is_nonnegative:
        return settle(dim + bound)
    raise Refused(f"the sign of the slice bound {bound} is only known at run time")


def _range(builder: Builder, start: Dim, end: Dim, step: int, dim: Dim) -> tuple[Dim, Dim]:
    """First index and count of start:end:step over a dim."""
    if step > 0:
        first = minimum(maximum(_from_front(start, dim), 0), dim)
        last = maximum(_from_front(end, dim), 0)
        # A cache that new rows were written into reaches to their end.
        last = last if builder.requires_at_least(dim, last) else minimum(last, dim)
        return first, maximum(0, ceil_div(last - first, step))
    first = minimum(maximum(_from_front(start, dim), -1), dim - 1)
    stop = -1 if is_static(end) and end <= -_OPEN_END else _from_front(end, dim)
    last = minimum(maximum(stop, -1), dim - 1)
    return first, maximum(0, ceil_div(first - last, -step))


def _slice(site: Site, starts: list[Dim], ends: list[Dim], axes: list[int], steps: list[int]) -> Value:
    x = site.need(0)
    rank = len(x.shape)
    first: list[Dim] = [0] * rank
    sizes, strides = list(x.shape), [1] * rank
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise Refused("the step of Slice is 0")
        place = normalize_axis(axis, rank)
        first[place], sizes[place] = _range(site.builder, start, end, step, x.shape[place])
        strides[place] = step
    if tuple(sizes) == x.shape and all(stride == 1 for stride in strides):
        return x
    return site.builder.add(DynamicSlice(tuple(first), tuple(sizes), tuple(strides)), x)


@lowers("Slice", since=1, until=1, attributes=["starts", "ends", "axes"])
def slice_attributes(site: Site) -> Value:
    starts: list[Dim] = list(site.attribute("starts", ()))
    ends: list[Dim] = list(site.attribute("ends", ()))
    return _slice(site, starts, ends, site.attribute("axes", list(range(len(starts)))), [1] * len(starts))


@lowers("Slice", since=10)
def slice_inputs(site: Site) -> Value:
    starts = known_dims(site.need(1), "the start of Slice")
    ends = known_dims(site.need(2), "the end of Slice")
    axes, steps = site.optional(3), site.optional(4)
    return _slice(
        site,
        starts,
        ends,
        list(range(len(starts))) if axes is None else known_ints(axes, "the axes of Slice"),
        [1] * len(starts) if steps is None else known_ints(steps, "the step of Slice"),
    )
