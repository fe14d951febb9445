"""Where moves leave their results: layouts in the memory of what they read, for the readers that go through strides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ortisan.codegen.strides import Layout, reshaped_strides
from ortisan.registry.dims import Dim, product, settle
from ortisan.registry.graph import Node, Op
from ortisan.registry.ops import DynamicSlice, Expand, Permute, Reshape, Split

Lay = Callable[[Node, Layout], tuple[Layout, ...]]
"""The layouts of a move's results, its input lying so; none where strides can't express them."""


def reshaped(node: Node, source: Layout) -> tuple[Layout, ...]:
    strides = reshaped_strides(node.inputs[0].shape, source.strides, node.output.shape)
    return () if strides is None else (replace(source, strides=strides),)


def permuted(node: Node, source: Layout) -> tuple[Layout, ...]:
    op, shape = node.op, node.inputs[0].shape
    assert isinstance(op, Permute)
    moved = [axis for axis in op.order if shape[axis] != 1]
    strides = tuple(source.strides[axis] for axis in op.order)
    return (replace(source, strides=strides, in_order=source.in_order and moved == sorted(moved)),)


def sliced(node: Node, source: Layout) -> tuple[Layout, ...]:
    op = node.op
    assert isinstance(op, DynamicSlice)
    offset = sum((start * stride for start, stride in zip(op.starts, source.strides, strict=True)), source.offset)
    strides = tuple(product(pair) for pair in zip(op.steps, source.strides, strict=True))
    return (replace(source, offset=settle(offset), strides=strides),)


def split(node: Node, source: Layout) -> tuple[Layout, ...]:
    op = node.op
    assert isinstance(op, Split)
    step = source.strides[op.axis]
    return tuple(replace(source, offset=settle(source.offset + start * step)) for start in starts_of(op.sizes))


def expanded(node: Node, source: Layout) -> tuple[Layout, ...]:
    """Repeated dims have stride 0; where only run time tells whether a dim is repeated, there is no layout."""
    shape, target = node.inputs[0].shape, node.output.shape
    own = target[len(target) - len(shape) :]
    if any(dim not in (1, extent) for dim, extent in zip(shape, own, strict=True)):
        return ()
    strides = (s if dim == extent else 0 for dim, extent, s in zip(shape, own, source.strides, strict=True))
    return (replace(source, strides=(*(0 for _ in range(len(target) - len(shape))), *strides)),)


def starts_of(sizes: Sequence[Dim]) -> list[Dim]:
    """Where each piece begins."""
    starts: list[Dim] = [0]
    for size in sizes[:-1]:
        starts.append(settle(starts[-1] + size))
    return starts


LAYOUTS: Mapping[type[Op], Lay] = {
    DynamicSlice: sliced,
    Expand: expanded,
    Permute: permuted,
    Reshape: reshaped,
    Split: split,
}
"""The moves whose results are layouts."""
