"""precision="bf16" and "weights-bf16": matrix products of narrower operands; all else stays in float32.

bf16            gemm(x, w)    becomes    gemm(bfloat16(x), bfloat16(w)) in float32
weights-bf16    gemm(x, w)    becomes    gemm(x, bfloat16(w))

Sums are float32, and so is what is added to them. The casts of x join what makes it, and its other readers read float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ortisan.registry.builder import Builder, is_constant
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import Bmm, Gemm
from ortisan.registry.passes.rewrite import Rule, run_pass

OPERANDS = {"bf16": DType.BFLOAT16}
"""The type that both operands of a product get."""
WEIGHTS = {"bf16": DType.BFLOAT16, "weights-bf16": DType.BFLOAT16}
"""The type that constant operands are stored in."""


def narrow_products(graph: Graph, precision: str) -> Graph:
    """Narrows the operands of products as the precision says; "keep" changes nothing."""
    if precision not in WEIGHTS:
        return graph
    return run_pass("narrow_products", graph, _NarrowProducts(OPERANDS.get(precision), WEIGHTS[precision]))


class _NarrowProducts(Rule):
    def __init__(self, operands: DType | None, weights: DType) -> None:
        self._operands = operands
        self._weights = weights
        self._stored: dict[Value, Value] = {}

    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        op = node.op
        if not isinstance(op, (Gemm, Bmm)) or node.output.dtype is not DType.FLOAT32:
            return None
        x, w, *bias = inputs
        if isinstance(op, Gemm) and is_constant(w):
            x = b.cast(x, self._operands) if self._operands else x
            return b.add_many(replace(op, out=DType.FLOAT32), x, self._narrowed(b, w), *bias)
        if self._operands is None:
            return None
        return b.add_many(replace(op, out=DType.FLOAT32), *(b.cast(v, self._operands) for v in (x, w)), *bias)

    def _narrowed(self, b: Builder, w: Value) -> Value:
        if w not in self._stored and w.data is not None:
            self._stored[w] = b.constant(w.data.astype(self._weights.numpy), w.name)
        return self._stored[w]
