"""`gemm_rcr`, `gemm_rrr` (weights) and `bmm_*` (two computed operands): matrix products.

The letters give the memory order of A, B and C: r = rows contiguous, c = columns contiguous. So `gemm_rcr` is
x @ w.T with w[N, K] (torch: F.linear) and `gemm_rrr` is x @ w with w[K, N] (torch: x @ w).

Operands may be narrower than the result: float32 times bfloat16 is float32 (stored weights), and two bfloat16 or two
float16 may give float32, which is how they are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ortisan.registry.dims import Dim, Facts, product
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import DimValues, Op, TensorType
from ortisan.registry.refusal import Refused

__all__ = ["BlockGemm", "Bmm", "Gemm"]

MemoryOrder = Literal["rcr", "rrr"]


def _wide(x: Array) -> Array:
    return x.astype(np.float64) if DType.from_numpy(x.dtype).is_float else x


NARROW = (DType.BFLOAT16, DType.FLOAT16)


def _result_type(inputs: Sequence[TensorType], out: DType | None) -> DType:
    """The type of a product, and of its bias: `out`, or that of the operands."""
    a, b, *bias = (t.dtype for t in inputs)
    dtype = out or a
    alike = a is b and (dtype is a or (a in NARROW and dtype is DType.FLOAT32))
    widened = a is dtype is DType.FLOAT32 and b in NARROW
    if not (alike or widened) or any(each is not dtype for each in bias):
        raise Refused(f"operands differ in type: {', '.join(t.dtype.value for t in inputs)}")
    if dtype is DType.BOOL:
        raise Refused("a matrix product of bool is not defined")
    return dtype


@dataclass(frozen=True)
class Gemm(Op):
    """x[..., K] times a matrix, plus a bias[N] when there is a third input."""

    layout: MemoryOrder
    bias: bool = False
    out: DType | None = None
    """The type of the result; None is that of x."""

    stem: ClassVar[str] = "gemm"
    ait: ClassVar[str | None] = "gemm_rcr, gemm_rrr, gemm_rcr_bias, gemm_rrr_bias"

    @property
    def name(self) -> str:
        return f"gemm_{self.layout}{'_bias' if self.bias else ''}"

    def n_axis(self) -> int:
        return 0 if self.layout == "rcr" else 1

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        dtype = _result_type(inputs, self.out)
        x, w = inputs[:2]
        if x.rank < 1 or w.rank != 2:
            raise Refused(f"a matrix product needs a matrix, not {w}")
        n, k = w.shape[self.n_axis()], w.shape[1 - self.n_axis()]
        facts.equal(x.shape[-1], k, "inner dims of the product")
        if self.bias:
            facts.equal(inputs[2].shape[0], n, "bias and product width")
        return (TensorType(dtype, (*x.shape[:-1], n)),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x, w = _wide(inputs[0]), _wide(inputs[1])
        with np.errstate(all="ignore"):
            y = np.matmul(x, w.T if self.layout == "rcr" else w)
            dtype = inputs[0].dtype if self.out is None else self.out.numpy
            return ((y + _wide(inputs[2]) if self.bias else y).astype(dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Dim:
        return product((2, inputs[0].shape[-1], *outputs[0].shape))


@dataclass(frozen=True)
class Bmm(Op):
    """a[..., M, K] times b[..., K, N] (rrr) or b[..., N, K] (rcr); leading dims broadcast. torch: a @ b."""

    layout: MemoryOrder
    out: DType | None = None
    """The type of the result; None is that of the operands."""

    stem: ClassVar[str] = "bmm"
    ait: ClassVar[str | None] = "bmm_rcr, bmm_rrr, gemm_rcr, gemm_rrr"

    @property
    def name(self) -> str:
        return f"bmm_{self.layout}"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        dtype = _result_type(inputs, self.out)
        a, b = inputs
        if a.dtype is not b.dtype:
            raise Refused(f"operands differ in type: {a.dtype.value}, {b.dtype.value}")
        if a.rank < 2 or b.rank < 2:
            raise Refused(f"a batched product needs matrices, not {a} and {b}")
        n, k = (b.shape[-1], b.shape[-2]) if self.layout == "rrr" else (b.shape[-2], b.shape[-1])
        facts.equal(a.shape[-1], k, "inner dims of the product")
        batch = facts.broadcast(a.shape[:-2], b.shape[:-2])
        return (TensorType(dtype, (*batch, a.shape[-2], n)),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        a, b = (_wide(x) for x in inputs)
        with np.errstate(all="ignore"):
            y = np.matmul(a, b if self.layout == "rrr" else np.swapaxes(b, -1, -2))
        return (y.astype(inputs[0].dtype if self.out is None else self.out.numpy),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Dim:
        return product((2, inputs[0].shape[-1], *outputs[0].shape))


@dataclass(frozen=True)
class BlockGemm(Op):
    """x[..., K] times a matrix of few bits in blocks along K, plus a bias[N] when there is a fifth input.

    w[n, k] = (q[n, k] - zero[n, k // block]) * scale[n, k // block], with q uint8[N, K in whole blocks] below 2^bits,
    scale and zero float32[N, blocks]. With `rounded`, each block of x is rounded to 8 bits first: to whole multiples
    of its largest magnitude / 127. torch: F.linear(x, (q - zero) * scale).
    """

    bits: int
    block: int
    depth: int
    """K"""
    bias: bool = False
    rounded: bool = False

    stem: ClassVar[str] = "block_gemm"
    ait: ClassVar[str | None] = "gemm_rcr, gemm_rcr_bias"

    @property
    def name(self) -> str:
        return f"block_gemm_{self.bits}x{self.block}{'_bias' if self.bias else ''}"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        x, q, scale, zero, *bias = inputs
        if x.dtype is not DType.FLOAT32 or q.dtype is not DType.UINT8 or {scale.dtype, zero.dtype} != {DType.FLOAT32}:
            raise Refused(f"a product with a quantized weight is float32, not {x}, {q}, {scale}, {zero}")
        if self.bits not in (4, 8) or self.block < 16 or self.block % 16:
            raise Refused(f"{self.bits} bits in blocks of {self.block} are not defined")
        if x.rank < 1 or q.rank != 2 or scale.shape != zero.shape:
            raise Refused(f"a product needs a matrix, not {q}, with as many zeros {zero} as scales {scale}")
        if q.shape[1] != -(-self.depth // self.block) * self.block:
            raise Refused(f"{q} has no {self.depth} rows in whole blocks of {self.block}")
        facts.equal(x.shape[-1], self.depth, "inner dims of the product")
        facts.equal(scale.shape[0], q.shape[0], "scales and product width")
        if bias:
            facts.equal(bias[0].shape[0], q.shape[0], "bias and product width")
        return (TensorType(x.dtype, (*x.shape[:-1], q.shape[0])),)

    def weight(self, q: Array, scale: Array, zero: Array) -> Array:
        """w[N, K] in float32, as it is before anything is rounded."""
        numbers = q.astype(np.float32).reshape(*scale.shape, self.block)
        return ((numbers - zero[..., None]) * scale[..., None]).reshape(len(q), -1)[:, : self.depth]

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x, q, scale, zero, *bias = inputs
        w = self.weight(q, scale, zero).astype(np.float64)
        with np.errstate(all="ignore"):
            y = np.matmul(_rounded(x, self.block) if self.rounded else x.astype(np.float64), w.T)
            return ((y + bias[0] if bias else y).astype(np.float32),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Dim:
        return product((2, inputs[0].shape[-1], *outputs[0].shape))


def _rounded(x: Array, block: int) -> Array:
    """Each block of a row as multiples of its largest magnitude / 127; a block that is not finite is NaN."""
    depth, count = x.shape[-1], -(-x.shape[-1] // block)
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, count * block - depth)])
    blocks = padded.reshape(*x.shape[:-1], count, block)
    one = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127)
    whole = np.rint(np.divide(blocks, one, out=np.zeros_like(blocks), where=one > 0))
    return np.where(np.isfinite(one), whole * one.astype(np.float64), np.nan).reshape(padded.shape)[..., :depth]
