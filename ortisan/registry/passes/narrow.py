"""precision="fp16": the same graph with float32 computed in float16, and float32 at its inputs and outputs.

What angles are made of (the operands of sine and cosine) stays in float32: a position above 2048 is no float16.
Constants that float16 can't hold become its largest finite numbers, so that a logit of -3e38 still hides a key and is
no infinity.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ortisan.registry.builder import Builder
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Graph, Node, Op, Value
from ortisan.registry.ops import Cast, Elementwise, Full

_LARGEST = float(np.finfo(np.float16).max)


def to_half(graph: Graph) -> Graph:
    b = Builder(graph.name)
    wide: dict[Value, Value] = {}
    half: dict[Value, Value] = {}

    def as_wide(value: Value) -> Value:
        if value.data is not None and value not in wide:
            return value
        if value not in wide:
            wide[value] = b.cast(half[value], value.dtype)
        return wide[value]

    def as_half(value: Value) -> Value:
        if value not in half:
            half[value] = _half_constant(b, value) if value.data is not None else _narrowed(b, wide[value])
        return half[value]

    for value in graph.inputs:
        wide[value] = b.input(value.name, value.type)
    precise = _precise(graph)
    for node in graph.nodes:
        b.origin = node.origin
        if node in precise:
            made = b.add_many(node.op, *map(as_wide, node.inputs))
            wide.update(zip(node.outputs, made, strict=True))
        else:
            made = b.add_many(_half_op(node.op), *map(as_half, node.inputs))
            half.update(zip(node.outputs, made, strict=True))
    made_by = {value: node.origin for node in graph.nodes for value in node.outputs}
    outputs = []
    for value in graph.outputs:
        b.origin = made_by.get(value, graph.name)
        outputs.append(as_wide(value))
    done = b.finish(outputs, graph.output_names, graph.bounds)
    return replace(done, guards=graph.guards)


def _narrowed(b: Builder, value: Value) -> Value:
    return b.cast(value, DType.FLOAT16) if value.dtype is DType.FLOAT32 else value


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
    """Sines and cosines, and all that leads to them."""
    made = {value: node for node in graph.nodes for value in node.outputs}
    found: set[Node] = set()
    open_nodes = [n for n in graph.nodes if isinstance(n.op, Elementwise) and n.op.func in ("SIN", "COS")]
    while open_nodes:
        node = open_nodes.pop()
        if node not in found:
            found.add(node)
            open_nodes += [made[value] for value in node.inputs if value in made]
    return frozenset(found)
