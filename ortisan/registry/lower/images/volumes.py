"""Volumes with the channels last, and as images: their layers are rows of the batch."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, settle
from ortisan.registry.graph import Value
from ortisan.registry.lower.images.windows import Steps
from ortisan.registry.ops import Concatenate, DynamicSlice, Pad
from ortisan.registry.ops.images import extent


def volume(b: Builder, x: Value) -> Value:
    """[batch, depth, height, width, channels]"""
    return b.permute(x, (0, 2, 3, 4, 1))


def volume_first(b: Builder, y: Value) -> Value:
    return b.permute(y, (0, 4, 1, 2, 3))


def as_planes(b: Builder, x: Value) -> Value:
    n, depth, *plane = x.shape
    return b.reshape(x, (settle(n * depth), *plane))


def as_volume(b: Builder, y: Value, outer: Sequence[Dim]) -> Value:
    return b.reshape(y, (*outer, *y.shape[1:]))


def layers(b: Builder, x: Value, depth: Steps) -> list[Value]:
    """For each place of a window along the depth, what all windows have there."""
    count = extent(x.shape[1], depth.before, depth.after, depth.span, depth.stride)
    b.require_at_least(count, 0, "the output of a convolution")
    if depth.before or depth.after:
        x = b.add(Pad((0, depth.before, 0, 0, 0), (0, depth.after, 0, 0, 0)), x)
    if depth.kernel == depth.stride == 1:
        return [x]
    n, _, *rest = x.shape
    starts = range(0, depth.span, depth.dilation)
    parts = (DynamicSlice((0, start, 0, 0, 0), (n, count, *rest), (1, depth.stride, 1, 1, 1)) for start in starts)
    return [b.add(part, x) for part in parts]


def stacked(b: Builder, parts: list[Value], group: int) -> Value:
    """The channels of the parts as one, group by group."""
    if len(parts) == 1:
        return parts[0]
    *places, channels = parts[0].shape
    apart = [b.reshape(part, (*places, group, channels // group)) for part in parts]
    return b.reshape(b.add(Concatenate(len(places) + 1), *apart), (*places, len(parts) * channels))
