"""One layout for images: permutes move behind elementwise nodes, where the next convolution's permute undoes them.

conv -> permute -> mul, add, relu -> permute -> conv    becomes    conv -> mul, add, relu -> conv
"""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.registry.builder import Builder
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import Conv2d, Elementwise, Permute, Pool2d
from ortisan.registry.passes.rewrite import Rule, run_pass

_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def channels_last(graph: Graph) -> Graph:
    """Keeps channels last between convolutions. Returns a graph without convolutions and pools unchanged."""
    has_images = any(isinstance(node.op, (Conv2d, Pool2d)) for node in graph.nodes)
    return run_pass("channels_last", graph, _ChannelsLast()) if has_images else graph


class _ChannelsLast(Rule):
    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if isinstance(node.op, Permute):
            return [_permuted(b, inputs[0], node.op.order)]
        moved = _before_permutes(b, node, inputs)
        return None if moved is None else [_permuted(b, b.add(node.op, *moved), _FIRST)]


def _permuted(b: Builder, x: Value, order: tuple[int, ...]) -> Value:
    before = b.producer(x)
    if before is not None and isinstance(before.op, Permute):
        return b.permute(before.inputs[0], tuple(before.op.order[axis] for axis in order))
    return b.permute(x, order)


def _before_permutes(b: Builder, node: Node, inputs: Sequence[Value]) -> list[Value] | None:
    """The operands with the channels last, if they all are permuted from there or constants."""
    if not isinstance(node.op, Elementwise) or len(node.output.shape) != 4:
        return None
    made = [b.producer(value) for value in inputs]
    are_images = [n is not None and isinstance(n.op, Permute) and n.op.order == _FIRST for n in made]
    if not any(are_images) or not all(
        image or value.data is not None for image, value in zip(are_images, inputs, strict=True)
    ):
        return None
    return [
        n.inputs[0] if image and n is not None else _constant(b, value)
        for image, n, value in zip(are_images, made, inputs, strict=True)
    ]


def _constant(b: Builder, value: Value) -> Value:
    if not value.shape or value.data is None or value.data.size == 1:
        return value
    return b.permute(b.reshape(value, (*(1,) * (4 - len(value.shape)), *value.shape)), _LAST)
