"""Products of one tensor with several weights become one, with the weights joined in numpy.

AITemplate does this too, but joins the weights on the GPU, where both forms then stay in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ortisan.registry.builder import Builder
from ortisan.registry.graph import Graph, Node, Op, Value
from ortisan.registry.ops import Elementwise, Gemm, Split
from ortisan.registry.passes.rewrite import Rule, run_pass

_EPILOGUES = frozenset({"RELU", "SIGMOID", "TANH", "GELU", "FASTGELU"})


def join_products(graph: Graph) -> Graph:
    return run_pass("join_products", graph, _JoinProducts(_groups(graph)))


class _JoinProducts(Rule):
    """The first product of a group makes them all; the others stand for pieces of it."""

    def __init__(self, groups: Sequence[Sequence[Node]]) -> None:
        self._group = {node: group for group in groups for node in group}
        self._pieces: dict[Node, Value] = {}

    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if node not in self._group:
            return None
        if node not in self._pieces:
            group = self._group[node]
            self._pieces.update(zip(group, _join(b, group, inputs[0]), strict=True))
        return [self._pieces[node]]


def _groups(graph: Graph) -> list[list[Node]]:
    """Products of one left side, two or more of a kind. Functions that alone read one become its epilogue instead."""
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
    reads = readers.get(node.output, ())
    return not (len(reads) == 1 and isinstance(reads[0], Elementwise) and reads[0].func in _EPILOGUES)


def _join(b: Builder, group: Sequence[Node], x: Value) -> Sequence[Value]:
    """The result of each product of the group, in order."""
    parts = zip(*(node.inputs[1:] for node in group), strict=True)
    joined = [
        b.constant(np.concatenate([value.data for value in part if value.data is not None]), part[0].name)
        for part in parts
    ]
    wide = b.add(group[0].op, x, *joined)
    sizes = tuple(node.output.shape[-1] for node in group)
    return b.add_many(Split(len(wide.shape) - 1, sizes), wide)
