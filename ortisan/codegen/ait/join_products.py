"""Products of one tensor with several weights become one, with the weights joined in numpy.

AITemplate does this too, but joins the weights on the GPU, where both forms then stay in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ortisan.registry.builder import Builder
from ortisan.registry.graph import Graph, Node, Op, Value
from ortisan.registry.ops import Elementwise, Gemm, Split

_EPILOGUES = frozenset({"RELU", "SIGMOID", "TANH", "GELU", "FASTGELU"})


def join_products(graph: Graph) -> Graph:
    groups = _groups(graph)
    first = {group[0]: group for group in groups}
    inside = {node for group in groups for node in group}
    b = Builder(graph.name)
    b.inputs = list(graph.inputs)
    values: dict[Value, Value] = {value: value for value in (*graph.inputs, *graph.constants)}
    for node in graph.nodes:
        b.origin = node.origin
        if node in first:
            _join(b, first[node], values)
        elif node not in inside:
            made = b.add_many(node.op, *(values[value] for value in node.inputs))
            values.update(zip(node.outputs, made, strict=True))
    done = b.finish([values[value] for value in graph.outputs], graph.output_names, graph.bounds)
    return replace(done, guards=graph.guards)


def _groups(graph: Graph) -> list[list[Node]]:
    """Products of one left side that no fused epilogue follows, two or more of a kind."""
    readers: dict[Value, list[Op]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node.op)
    found: dict[tuple[Value, Gemm], list[Node]] = {}
    for node in graph.nodes:
        if _joins(node, readers) and node.output not in graph.outputs and isinstance(node.op, Gemm):
            found.setdefault((node.inputs[0], node.op), []).append(node)
    return [group for group in found.values() if len(group) > 1]


def _joins(node: Node, readers: Mapping[Value, Sequence[Op]]) -> bool:
    if not isinstance(node.op, Gemm) or node.op.layout != "rcr":
        return False
    if any(value.data is None for value in node.inputs[1:]):
        return False
    return not any(isinstance(op, Elementwise) and op.func in _EPILOGUES for op in readers.get(node.output, ()))


def _join(b: Builder, group: Sequence[Node], values: dict[Value, Value]) -> None:
    parts = zip(*(node.inputs[1:] for node in group), strict=True)
    joined = [
        b.constant(np.concatenate([value.data for value in part if value.data is not None]), part[0].name)
        for part in parts
    ]
    wide = b.add(group[0].op, values[group[0].inputs[0]], *joined)
    sizes = tuple(node.output.shape[-1] for node in group)
    pieces = b.add_many(Split(len(wide.shape) - 1, sizes), wide)
    values.update(zip((node.output for node in group), pieces, strict=True))
