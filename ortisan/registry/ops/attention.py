"""`attention`: softmax(scale * q k^T + mask) v in one op. torch: F.scaled_dot_product_attention.

q[B,H,S,D], k[B,K,T,D], v[B,K,T,E], mask broadcastable to [B,H,S,T] -> [B,H,S,E]. K divides H: query head h reads
key and value head h // (H / K). An additive mask may be float32 where q, k and v are narrower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ortisan.registry.dims import Dim, Facts, product
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import DimValues, Op, TensorType
from ortisan.registry.refusal import Refused

__all__ = ["Attention"]

MaskKind = Literal["none", "additive", "boolean"]
Causality = Literal["none", "upper_left", "lower_right"]
"""The keys that query i may see: all; those up to i; those up to i + T - S, where T - S keys are the past."""


@dataclass(frozen=True)
class Attention(Op):
    """softmax(scale * q k^T + mask) v. torch: F.scaled_dot_product_attention.

    The logits are scaled, then capped when `softcap` is not 0: softcap * tanh(logit / softcap), then masked.

    Where a boolean mask is false the logit is `hidden`: by default -inf when `empty_rows_zero`, else the lowest finite
    number, so that a row without any visible key is the mean of the values. With `empty_rows_zero` a row whose logits
    are all -inf is 0, and with `nan_rows_zero` any row whose weights are NaN; else these rows are NaN. A key that comes
    after the query has a logit of -inf, whatever the mask says. Keys that causality or a boolean mask hides need not
    be read: NaN or infinity in them and their values may or may not reach a result.
    """

    scale: float
    mask: MaskKind = "none"
    empty_rows_zero: bool = False
    causal: Causality = "none"
    softcap: float = 0.0
    hidden: float | None = None
    nan_rows_zero: bool = False

    stem: ClassVar[str] = "attention"
    ait: ClassVar[str | None] = "ours"

    @property
    def hidden_logit(self) -> float:
        if self.hidden is not None:
            return self.hidden
        return -math.inf if self.empty_rows_zero else float(np.finfo(np.float32).min)

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        q, k, v = inputs[:3]
        if not q.dtype.is_float or not q.dtype is k.dtype is v.dtype:
            raise Refused(f"attention needs q, k, v of one float type, not {q}, {k}, {v}")
        if not q.rank == k.rank == v.rank == 4:
            raise Refused(f"attention needs q, k, v with 4 dims, not {q}, {k}, {v}")
        if not (math.isfinite(self.softcap) and self.softcap >= 0):
            raise Refused(f"attention needs a softcap that is 0 or positive, not {self.softcap}")
        facts.equal(q.shape[0], k.shape[0], "batch dims of q and k")
        facts.equal(q.shape[0], v.shape[0], "batch dims of q and v")
        facts.equal(k.shape[1], v.shape[1], "head dims of k and v")
        if q.shape[1] != k.shape[1]:
            facts.divisible(q.shape[1], k.shape[1], "heads of q and of k")
        facts.equal(q.shape[3], k.shape[3], "head sizes of q and k")
        facts.equal(k.shape[2], v.shape[2], "lengths of k and v")
        if self.mask != "none":
            self._check_mask(inputs[3], (*q.shape[:3], k.shape[2]), q.dtype, facts)
        return (TensorType(q.dtype, (*q.shape[:3], v.shape[3])),)

    def _check_mask(self, mask: TensorType, scores: tuple[Dim, ...], dtype: DType, facts: Facts) -> None:
        expected = DType.BOOL if self.mask == "boolean" else dtype
        if mask.dtype is not expected and not (self.mask == "additive" and mask.dtype is DType.FLOAT32):
            raise Refused(f"the {self.mask} mask is {mask.dtype.value}, expected {expected.value}")
        if mask.rank > 4:
            raise Refused(f"the mask {mask} has more than 4 dims")
        for have, need in zip(reversed(mask.shape), reversed(scores), strict=False):
            if have != 1:
                facts.broadcast_dims(have, need)
                facts.at_least(need, have, "the logits' dims and the mask's")

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        q, k, v = (x.astype(np.float64) for x in inputs[:3])
        if q.shape[1] != k.shape[1]:
            k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
        with np.errstate(all="ignore"):
            logits = np.matmul(q, np.swapaxes(k, -1, -2)) * self.scale
            if self.softcap:
                logits = self.softcap * np.tanh(logits / self.softcap)
            if self.mask == "additive":
                # The sum is rounded to the working type, where a finite -3.4e38 swallows the logit.
                logits = (logits + inputs[3].astype(np.float64)).astype(inputs[3].dtype).astype(np.float64)
            elif self.mask == "boolean":
                logits = np.where(inputs[3], logits, self.hidden_logit)
            if self.causal != "none":
                queries, keys = logits.shape[-2:]
                past = keys - queries if self.causal == "lower_right" else 0
                logits = np.where(np.tri(queries, keys, past, dtype=bool), logits, -np.inf)
            if logits.shape[-1] == 0:
                return (np.zeros((*q.shape[:3], v.shape[3]), inputs[0].dtype),)
            weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            if self.empty_rows_zero:
                weights = np.where(np.isneginf(logits).all(axis=-1, keepdims=True), 0.0, weights)
            if self.nan_rows_zero:
                weights = np.where(np.isnan(weights).any(axis=-1, keepdims=True), 0.0, weights)
            return (np.matmul(weights, v).astype(inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Dim:
        q, k, v = inputs[:3]
        return product((2, *q.shape, k.shape[2])) + product((2, *q.shape[:3], k.shape[2], v.shape[3]))
