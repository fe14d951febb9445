"""Keeps AITemplate from fusing what it can't: a value that several elementwise readers of larger shapes share.

It would make one kernel with outputs of two shapes, and refuse it. A view between the value and its readers ends the
fusion: the value is computed without its dims of 1, which the view puts back (or with one more in front).
"""

from __future__ import annotations

from dataclasses import replace

from ortisan.registry.builder import Builder
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import Elementwise


def set_barriers(graph: Graph) -> Graph:
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in dict.fromkeys(node.inputs):
            readers.setdefault(value, []).append(node)
    b = Builder(graph.name)
    b.inputs = list(graph.inputs)
    values: dict[Value, Value] = {value: value for value in (*graph.inputs, *graph.constants)}
    for node in graph.nodes:
        b.origin = node.origin
        inputs = [values[value] for value in node.inputs]
        shared = len(readers.get(node.output, ())) + (node.output in graph.outputs) > 1
        if isinstance(node.op, Elementwise) and shared and _grows(node, readers[node.output]):
            values[node.output] = _behind_a_view(b, node, inputs)
        else:
            values.update(zip(node.outputs, b.add_many(node.op, *inputs), strict=True))
    done = b.finish([values[value] for value in graph.outputs], graph.output_names, graph.bounds)
    return replace(done, guards=graph.guards)


def _grows(node: Node, readers: list[Node]) -> bool:
    return any(isinstance(reader.op, Elementwise) and reader.output.shape != node.output.shape for reader in readers)


def _behind_a_view(b: Builder, node: Node, inputs: list[Value]) -> Value:
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
