"""Keeps AITemplate from fusing what it can't: a value that several elementwise readers of larger shapes share.

It would make one kernel with outputs of two shapes, and refuse it. A view between the value and its readers ends the
fusion: the value is computed without its dims of 1, which the view puts back (or with one more in front).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ortisan.registry.builder import Builder
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import Elementwise
from ortisan.registry.passes.rewrite import Rule, run_pass


def set_barriers(graph: Graph) -> Graph:
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in dict.fromkeys(node.inputs):
            readers.setdefault(value, []).append(node)
    return run_pass("set_barriers", graph, _SetBarriers(readers, graph.outputs))


class _SetBarriers(Rule):
    def __init__(self, readers: Mapping[Value, Sequence[Node]], outputs: Sequence[Value]) -> None:
        self._readers = readers
        self._outputs = outputs

    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        readers = self._readers.get(node.output, ())
        shared = len(readers) + (node.output in self._outputs) > 1
        if isinstance(node.op, Elementwise) and shared and _grows(node, readers):
            return [_behind_a_view(b, node, inputs)]
        return None


def _grows(node: Node, readers: Sequence[Node]) -> bool:
    return any(isinstance(reader.op, Elementwise) and reader.output.shape != node.output.shape for reader in readers)


def _behind_a_view(b: Builder, node: Node, inputs: Sequence[Value]) -> Value:
    shape = node.output.shape
    ones = {len(shape) - axis for axis, dim in enumerate(shape) if dim == 1}
    if not ones or len(ones) == len(shape):
        wide = [b.reshape(value, (1, *value.shape)) if len(value.shape) == len(shape) else value for value in inputs]
        return b.reshape(b.add(node.op, *wide), shape)
    return b.reshape(b.add(node.op, *(_without(b, value, ones) for value in inputs)), shape)


def _without(b: Builder, value: Value, ones: set[int]) -> Value:
    """The value without the dims of 1 at these places, counted from the end."""
    rank = len(value.shape)
    return b.reshape(value, [dim for axis, dim in enumerate(value.shape) if rank - axis not in ones])
