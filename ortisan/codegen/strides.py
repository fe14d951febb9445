"""Stride arithmetic: where the elements of a tensor lie in memory, and in what steps a loop walks through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ortisan.codegen.expressions import contiguous_strides
from ortisan.registry.dims import Dim, Shape, product


@dataclass(frozen=True)
class Layout:
    """Where the elements of a value lie in the memory of another, in elements."""

    offset: Dim
    strides: tuple[Dim, ...]
    in_order: bool = True
    """Whether its elements lie in memory in the order of their indices, or in the reverse one along an axis."""


def contiguous(shape: Shape) -> Layout:
    """The layout of a value that is all of its memory, row by row."""
    return Layout(0, contiguous_strides(shape))


def has_strides(shape: Sequence[Dim], strides: Sequence[Dim], wanted: Sequence[Dim]) -> bool:
    """Whether a tensor has these strides, as far as its dims are not 1."""
    return all(dim == 1 or a == b for dim, a, b in zip(shape, strides, wanted, strict=True))


def walk(have: Sequence[Dim], extents: Sequence[Dim], strides: Sequence[Dim]) -> tuple[Dim | None, ...]:
    """Strides under which a tensor is read as if it had these extents; None where only run time tells."""
    own = (0 if dim == 1 else s if dim == extent else None
           for dim, extent, s in zip(have, extents[len(extents) - len(have):], strides, strict=True))  # fmt: skip
    return (*(0 for _ in range(len(extents) - len(have))), *own)


def continues(outer: Dim | None, inner: Dim | None, extent: Dim) -> bool:
    """Whether an axis and the one inside it, of this extent, are walked through in one stride."""
    return outer is not None and inner is not None and bool(outer == product((extent, inner)))


def line_length(steps: Sequence[Dim | None], extents: Sequence[Dim]) -> Dim | None:
    """How many elements, neighbours or the same one, follow each other; None when the first two are neither."""
    axes = [(step, extent) for step, extent in zip(steps, extents, strict=True) if extent != 1]
    if not axes:
        return 1
    (inner, length), *outer = reversed(axes)
    if inner not in (0, 1):
        return None
    extent = length
    for step, next_extent in outer:
        if not continues(step, inner, extent):
            break
        inner, extent, length = step, next_extent, product((length, next_extent))
    return length


def reshaped_strides(shape: Sequence[Dim], strides: Sequence[Dim], target: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """Strides of a strided tensor after a reshape that moves nothing, or None when there are none."""
    have = [(dim, stride) for dim, stride in zip(shape, strides, strict=True) if dim != 1]
    want = [dim for dim in target if dim != 1]
    found: list[Dim] = []
    while have or want:
        match = _match(have, want)
        if match is None:
            return None
        taken, given = match
        dims, steps = zip(*have[:taken], strict=True)
        # Several dims become one, or one several: they lie in memory as if they were contiguous.
        if any(steps[i] != product((dims[i + 1], steps[i + 1])) for i in range(taken - 1)):
            return None
        found += [product((step, steps[-1])) for step in contiguous_strides(want[:given])]
        have, want = have[taken:], want[given:]
    rest = iter(found)
    return tuple(0 if dim == 1 else next(rest) for dim in target)


def _match(have: Sequence[tuple[Dim, Dim]], want: Sequence[Dim]) -> tuple[int, int] | None:
    """The fewest leading dims on both sides with the same number of elements, one dim on one of the sides."""
    for count in range(1, max(len(have), len(want)) + 1):
        if count <= len(want) and have and product(want[:count]) == have[0][0]:
            return 1, count
        if count <= len(have) and want and product([dim for dim, _ in have[:count]]) == want[0]:
            return count, 1
    return None
