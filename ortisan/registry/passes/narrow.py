"""precision="fp16": the same graph with float32 computed in float16, and float32 at its inputs and outputs.

Whatever feeds sine and cosine stays in float32, because float16 can't represent positions above 2048. Constants beyond
float16's range are clamped to its largest finite values, so that a mask of -3e38 still hides a key without becoming
infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ortisan.registry.builder import Builder, is_constant
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Graph, Node, Op, Value
from ortisan.registry.ops import Cast, Elementwise, Full
from ortisan.registry.passes.rewrite import Rule, run_pass

_LARGEST = float(np.finfo(np.float16).max)


def narrow(graph: Graph) -> Graph:
    """Computes float32 in float16, except for what must stay precise."""
    return run_pass("narrow", graph, _Narrow(_precise(graph)))


class _Narrow(Rule):
    """Values keep the type that their node computes in; a reader that needs the other type casts, once per value."""

    def __init__(self, precise: frozenset[Node]) -> None:
        self._precise = precise
        self._constants: dict[Value, Value] = {}

    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
        operands = zip(node.inputs, inputs, strict=True)
        if node in self._precise:
            return b.add_many(node.op, *(b.cast(made, value.dtype) for value, made in operands))
        return b.add_many(_half_op(node.op), *(self._half(b, value, made) for value, made in operands))

    def output(self, b: Builder, value: Value, made: Value) -> Value:
        return b.cast(made, value.dtype)

    def _half(self, b: Builder, value: Value, made: Value) -> Value:
        if not is_constant(value):
            return b.cast(made, DType.FLOAT16) if made.dtype is DType.FLOAT32 else made
        if value not in self._constants:
            self._constants[value] = _half_constant(b, value)
        return self._constants[value]


def _half_constant(b: Builder, value: Value) -> Value:
    if value.dtype is not DType.FLOAT32 or value.data is None:
        return value
    data = value.data
    clipped = np.where(np.isfinite(data), np.clip(data, -_LARGEST, _LARGEST), data)
    return b.constant(clipped.astype(np.float16), value.name)


def _half_op(op: Op) -> Op:
    if isinstance(op, Cast) and op.to is DType.FLOAT32:
        return Cast(DType.FLOAT16)
    return replace(op, dtype=DType.FLOAT16) if isinstance(op, Full) and op.dtype is DType.FLOAT32 else op


def _precise(graph: Graph) -> frozenset[Node]:
    """Sines and cosines, and everything they depend on."""
    made = {value: node for node in graph.nodes for value in node.outputs}
    found: set[Node] = set()
    open_nodes = [n for n in graph.nodes if isinstance(n.op, Elementwise) and n.op.func in ("SIN", "COS")]
    while open_nodes:
        node = open_nodes.pop()
        if node not in found:
            found.add(node)
            open_nodes += [made[value] for value in node.inputs if value in made]
    return frozenset(found)
