"""precision="bf16" and "weights-*": matrix products of narrower operands; all else stays in float32.

bf16            gemm(x, w)            becomes    gemm(bfloat16(x), bfloat16(w)) in float32
                attention(q, k, v)    becomes    float32(attention(bfloat16(q), bfloat16(k), bfloat16(v)))
weights-bf16    gemm(x, w)            becomes    gemm(x, bfloat16(w))
weights-int8    gemm(x, w)            becomes    block_gemm(x, q, scale, zero), of numbers of 8 bits in blocks of 32

Sums are float32, and so are what is added to them, masks and softmax. A cast stands where x is computed, before it is
moved, so that it joins that kernel; other readers of x read float32. Attention over a past stays as it is: its keys and
values are the caller's, and casting all of them at each step would take longer than reading them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ortisan.registry.builder import Builder, is_constant
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Graph, Node, Op, Value
from ortisan.registry.ops import (
    Attention,
    BlockGemm,
    Bmm,
    Cast,
    Elementwise,
    Gemm,
    LayerNorm,
    Permute,
    Reshape,
    RmsNorm,
    Rotary,
    Split,
)
from ortisan.registry.passes.block_quantize import BITS, BLOCK, block_quantize
from ortisan.registry.passes.rewrite import Rule, run_pass

_MOVES = (Permute, Reshape, Split)
_COMPUTED = (Elementwise, Gemm, LayerNorm, RmsNorm, Rotary)
OPERANDS = {"bf16": DType.BFLOAT16}
"""The type that both operands of a product get."""
WEIGHTS = {"bf16": DType.BFLOAT16, "weights-bf16": DType.BFLOAT16}
"""The type that constant operands are stored in."""
PRECISIONS = (*WEIGHTS, "weights-int8")


def narrow_products(graph: Graph, precision: str) -> Graph:
    """Narrows the operands of products as the precision says; "keep" changes nothing."""
    if precision == "weights-int8":
        return run_pass("narrow_products", graph, _QuantizeWeights())
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
        if not isinstance(op, (Attention, Gemm, Bmm)) or node.output.dtype is not DType.FLOAT32:
            return None
        x, w, *more = inputs
        if isinstance(op, Gemm) and is_constant(w):
            x = _cast(b, x, self._operands) if self._operands else x
            return b.add_many(replace(op, out=DType.FLOAT32), x, self._narrowed(b, w), *more)
        if self._operands is None:
            return None
        if isinstance(op, Attention):
            return self._attention(b, op, inputs)
        return b.add_many(replace(op, out=DType.FLOAT32), *(_cast(b, v, self._operands) for v in (x, w)), *more)

    def _attention(self, b: Builder, op: Attention, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        q, k, v, *mask = inputs
        if self._operands is None or not all(isinstance(_made(b, x), _COMPUTED) for x in (q, k, v)):
            return None
        return [b.cast(b.add(op, *(_cast(b, x, self._operands) for x in (q, k, v)), *mask), DType.FLOAT32)]

    def _narrowed(self, b: Builder, w: Value) -> Value:
        if w not in self._stored and w.data is not None:
            self._stored[w] = b.constant(w.data.astype(self._weights.numpy), w.name)
        return self._stored[w]


class _QuantizeWeights(Rule):
    def __init__(self) -> None:
        self._stored: dict[tuple[Value, str], tuple[Value, ...]] = {}

    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        op = node.op
        if not isinstance(op, Gemm) or not is_constant(inputs[1]) or inputs[1].dtype is not DType.FLOAT32:
            return None
        x, w, *more = inputs
        depth = int(w.shape[1 - op.n_axis()])
        if depth < BLOCK:
            return None
        quantized = BlockGemm(BITS, BLOCK, depth, op.bias, rounded=True)
        return [b.add(quantized, x, *self._quantized(b, w, op.layout), *more)]

    def _quantized(self, b: Builder, w: Value, layout: str) -> tuple[Value, ...]:
        key = w, layout
        if key not in self._stored and w.data is not None:
            parts = block_quantize(w.data if layout == "rcr" else w.data.T)
            names = (w.name, f"{w.name}/scale", f"{w.name}/zero")
            self._stored[key] = tuple(b.constant(data, name) for data, name in zip(parts, names, strict=True))
        return self._stored[key]


def _cast(b: Builder, x: Value, to: DType) -> Value:
    """The value cast where it is computed, before it is moved; what was widened is taken as it was."""
    made = b.producer(x)
    if made is not None and isinstance(made.op, _MOVES):
        moved = b.add_many(made.op, _cast(b, made.inputs[0], to), *made.inputs[1:])
        return moved[made.outputs.index(x)]
    if made is not None and isinstance(made.op, Cast) and made.inputs[0].dtype is to:
        return made.inputs[0]
    return b.cast(x, to)


def _made(b: Builder, x: Value) -> Op | None:
    """What computed a value that may have been moved since."""
    made = b.producer(x)
    while made is not None and isinstance(made.op, _MOVES):
        made = b.producer(made.inputs[0])
    return None if made is None else made.op
