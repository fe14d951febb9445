"""One layout for images: permutes move towards the outputs, where the next convolution's permute undoes them.

conv -> permute -> mul, add, pad, concat -> permute -> conv    becomes    conv -> mul, add, pad, concat -> conv

An image is a value that is a permute of one with the channels last. What an op does along an axis of an image, it does
along another one of that; a reshape stays a barrier, unless it only regroups the channels or the places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, Shape, is_static, product
from ortisan.registry.graph import Graph, Node, Op, Value
from ortisan.registry.ops import (
    Cast,
    Concatenate,
    Conv2d,
    CumSum,
    DynamicSlice,
    Elementwise,
    Expand,
    GroupNorm,
    LayerNorm,
    Pad,
    Permute,
    Pool2d,
    Reduce,
    Reshape,
    Softmax,
    Split,
)
from ortisan.registry.passes.rewrite import Rule, run_pass

_RANKS = (3, 4, 5)


def first(rank: int) -> tuple[int, ...]:
    """The order that moves the channels from the end to the front."""
    return (0, rank - 1, *range(1, rank - 1))


def last(rank: int) -> tuple[int, ...]:
    """The order that moves the channels to the end."""
    return (0, *range(2, rank), 1)


def channels_last(graph: Graph) -> Graph:
    """Keeps channels last between convolutions. Returns a graph without convolutions and pools unchanged."""
    has_images = any(isinstance(node.op, (Conv2d, Pool2d)) for node in graph.nodes)
    return run_pass("channels_last", graph, _ChannelsLast()) if has_images else graph


class _ChannelsLast(Rule):
    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        op = node.op
        if isinstance(op, Permute):
            return [_permuted(b, inputs[0], op.order)]
        if isinstance(op, Reshape):
            made = _reshaped(b, inputs[0], op.shape)
            return None if made is None else [made]
        if isinstance(op, (Elementwise, Cast)):
            operands = _operands(b, inputs, len(node.output.shape))
            return None if operands is None else [_permuted(b, b.add(op, *operands), first(len(node.output.shape)))]
        if isinstance(op, LayerNorm):
            return _normalized(b, op, inputs, node.output.shape)
        image = _image(b, inputs[0]) if inputs else None
        if image is None:
            return None
        if isinstance(op, Reduce):
            return _reduced(b, op, image, node.output.shape)
        return _moved(b, op, image, inputs)


def _image(b: Builder, value: Value) -> Value | None:
    """The value with the channels last that this one is a permute of."""
    made, rank = b.producer(value), len(value.shape)
    if made is None or rank not in _RANKS:
        return None
    source = made.inputs[0] if made.inputs else value
    if isinstance(made.op, Permute):
        return source if made.op.order == first(rank) else None
    is_image = isinstance(made.op, Reshape) and source.shape == tuple(value.shape[axis] for axis in last(rank))
    return source if is_image and _moves_nothing(value.shape, last(rank)) else None


def _permuted(b: Builder, x: Value, order: tuple[int, ...]) -> Value:
    before = b.producer(x)
    if before is not None and isinstance(before.op, Permute):
        x, order = before.inputs[0], tuple(before.op.order[axis] for axis in order)
    elif before is not None and isinstance(before.op, Reshape) and order != first(len(order)):
        joined = _joined(b, before.inputs[0], x.shape, order)
        if joined is not None:
            return joined
    if _moves_nothing(x.shape, order):
        shape = tuple(x.shape[axis] for axis in order)
        before = b.producer(x)
        is_undone = before is not None and isinstance(before.op, Reshape) and before.inputs[0].shape == shape
        return before.inputs[0] if before is not None and is_undone else b.reshape(x, shape)
    return b.permute(x, order)


def _joined(b: Builder, x: Value, shape: Shape, order: Sequence[int]) -> Value | None:
    """A permute of neighbouring axes that were joined, as one with what permuted them before: pixels of a shuffle."""
    before, groups, axis = b.producer(x), [], 0
    if before is None or not isinstance(before.op, Permute) or len(x.shape) <= len(shape):
        return None
    for dim in shape:
        begin, axis = axis, axis + 1
        while axis < len(x.shape) and product(x.shape[begin:axis]) != dim:
            axis += 1
        if product(x.shape[begin:axis]) != dim:
            return None
        groups.append(range(begin, axis))
    if axis != len(x.shape):
        return None
    apart = tuple(before.op.order[inner] for outer in order for inner in groups[outer])
    return b.reshape(b.permute(before.inputs[0], apart), (shape[axis] for axis in order))


def _moves_nothing(shape: Shape, order: Sequence[int]) -> bool:
    moved = [axis for axis in order if shape[axis] != 1]
    return moved == sorted(moved)


def _operands(b: Builder, inputs: Sequence[Value], rank: int) -> list[Value] | None:
    """The operands of an elementwise op with the channels last, if one is an image and the others cost nothing."""
    images = [_image(b, value) for value in inputs]
    if rank not in _RANKS or all(image is None or len(image.shape) != rank for image in images):
        return None
    found: list[Value] = []
    for value, image in zip(inputs, images, strict=True):
        if image is not None and len(image.shape) == rank:
            found.append(image)
        elif value.data is not None and value.data.size == 1:
            found.append(value)
        else:
            whole = b.reshape(value, (*(1,) * (rank - len(value.shape)), *value.shape))
            if value.data is None and not _moves_nothing(whole.shape, last(rank)) and not _is_wide(whole.shape, images):
                return None
            found.append(_permuted(b, whole, last(rank)))
    return found


def _is_wide(shape: Shape, images: Sequence[Value | None]) -> bool:
    """Whether an operand, which would have to be permuted, has no more elements than what need not be then."""
    return any(image is not None and product(shape) == image.type.elements for image in images)


def _reshaped(b: Builder, x: Value, shape: Shape) -> Value | None:
    """A reshape of [N, channels, places] that keeps the channels, or one that keeps the places of an image."""
    before = b.producer(x)
    if before is not None and isinstance(before.op, Reshape) and before.inputs[0].shape == shape:
        return before.inputs[0]
    if before is None or not isinstance(before.op, Permute) or len(x.shape) < 3 or len(shape) < 3:
        return None
    source, order, rank = before.inputs[0], before.op.order, len(x.shape)
    if rank in _RANKS and order == first(rank) and len(shape) in _RANKS and tuple(shape[:2]) == tuple(x.shape[:2]):
        return _permuted(b, b.reshape(source, (shape[0], *shape[2:], shape[1])), first(len(shape)))
    channels = rank - 3
    is_image = rank >= 4 and order[0] == 0 and order[-2:] == (1, 2)
    if is_image and shape[0] == x.shape[0] and tuple(shape[-2:]) == tuple(x.shape[-2:]) and len(shape) >= 4:
        grouped = b.permute(source, (0, 1, 2, *order[1 : 1 + channels]))
        regrouped = b.reshape(grouped, (shape[0], *shape[-2:], *shape[1:-2]))
        return _permuted(b, regrouped, (0, *range(3, len(shape)), 1, 2))
    return None


def _normalized(b: Builder, op: LayerNorm, inputs: Sequence[Value], shape: Shape) -> Sequence[Value] | None:
    """Rows of all places of a channel, or of those of some channels: an instance or a group normalisation."""
    (x, *affine), whole = inputs, b.producer(inputs[0])
    if op.axis != 2 or affine or op.statistics:
        return None
    image = _image(b, x)
    if image is None and whole is not None and isinstance(whole.op, Reshape) and len(x.shape) == 3:
        image = _image(b, whole.inputs[0])
    if image is None or image.shape[0] != x.shape[0] or not is_static(image.shape[-1]):
        return None
    channels, groups = image.shape[-1], x.shape[1]
    if not is_static(groups) or groups == 0 or channels % groups:
        return None
    ones, zeros = (b.constant(np.full(channels, number, x.dtype.numpy)) for number in (1, 0))
    normal = b.add(GroupNorm(groups, op.epsilon), image, ones, zeros)
    return [b.reshape(_permuted(b, normal, first(len(image.shape))), shape)]


def _reduced(b: Builder, op: Reduce, image: Value, shape: Shape) -> Sequence[Value] | None:
    rank = len(image.shape)
    if op.last >= rank:
        return None
    axes = sorted(last(rank).index(axis) for axis in op.axes)
    if axes[-1] - axes[0] + 1 != len(axes):
        return None
    small = b.add(replace(op, first=axes[0], last=axes[-1], keepdim=True), image)
    return [b.reshape(_permuted(b, small, first(rank)), shape)]


def _moved(b: Builder, op: Op, image: Value, inputs: Sequence[Value]) -> Sequence[Value] | None:
    """An op along an axis, or with a number per axis, of an image."""
    rank = len(image.shape)
    change = _ALONG.get(type(op))
    if change is None:
        return None
    others = inputs[1:]
    if isinstance(op, Concatenate):
        images = [_image(b, value) for value in others]
        if any(found is None and value.data is None for found, value in zip(images, others, strict=True)):
            return None
        others = tuple(
            _permuted(b, value, last(rank)) if found is None else found
            for found, value in zip(images, others, strict=True)
        )
    if isinstance(op, Expand) and len(op.shape) != rank:
        return None
    return [_permuted(b, made, first(rank)) for made in b.add_many(change(op, rank), image, *others)]


def _per_axis(numbers: Sequence[Dim], rank: int) -> tuple[Dim, ...]:
    return tuple(numbers[axis] for axis in last(rank))


def _axis(op: Op, rank: int) -> Op:
    return replace(op, axis=last(rank).index(op.axis))  # type: ignore[type-var, attr-defined]


def _slice(op: DynamicSlice, rank: int) -> Op:
    return DynamicSlice(_per_axis(op.starts, rank), _per_axis(op.sizes, rank), _per_axis(op.steps, rank))


_ALONG: dict[type[Op], Callable[..., Op]] = {
    Concatenate: _axis,
    CumSum: _axis,
    DynamicSlice: _slice,
    Expand: lambda op, rank: Expand(_per_axis(op.shape, rank)),
    Pad: lambda op, rank: replace(op, before=_per_axis(op.before, rank), after=_per_axis(op.after, rank)),
    Softmax: _axis,
    Split: _axis,
}
"""What an op on an image becomes when the channels are last."""
