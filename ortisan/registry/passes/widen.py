"""Convolutions and pools of float16 and bfloat16 are computed in float32: stored in 16 bits, added up in 32.

conv(x, w)    becomes    cast(conv(cast(x), w))

The casts join what is around them: a loop or an epilogue rounds what it stores, as it does for other ops.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ortisan.registry.builder import Builder, is_constant
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import Conv2d, Pool2d
from ortisan.registry.passes.rewrite import Rule, run_pass

_SMALL = (DType.FLOAT16, DType.BFLOAT16)


def widen(graph: Graph) -> Graph:
    """Computes windows of small floats in float32. Returns a graph without them unchanged."""
    return run_pass("widen", graph, _Widen()) if any(map(_is_small, graph.nodes)) else graph


def _is_small(node: Node) -> bool:
    return isinstance(node.op, (Conv2d, Pool2d)) and node.inputs[0].dtype in _SMALL


class _Widen(Rule):
    def __init__(self) -> None:
        self._constants: dict[Value, Value] = {}

    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if not _is_small(node):
            return None
        wide = b.add_many(node.op, *(self._wide(b, value) for value in inputs))
        return [b.cast(made, value.dtype) for made, value in zip(wide, node.outputs, strict=True)]

    def _wide(self, b: Builder, value: Value) -> Value:
        if not is_constant(value) or value.data is None:
            return b.cast(value, DType.FLOAT32)
        if value not in self._constants:
            self._constants[value] = b.constant(value.data.astype(np.float32), value.name)
        return self._constants[value]
