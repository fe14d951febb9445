"""`rotary`: positions turned into rotations of pairs of elements (rotary position embedding).

x[B,H,S,D], cos and sin broadcastable to [B,H,S,size] or to [B,H,S,size / 2] -> [B,H,S,D].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ortisan.registry.dims import Dim, Facts, product
from ortisan.registry.dtypes import Array
from ortisan.registry.graph import DimValues, Op, TensorType
from ortisan.registry.refusal import Refused

__all__ = ["Rotary"]


@dataclass(frozen=True)
class Rotary(Op):
    """Rotates pairs among the first `size` elements of each row by the angles whose cosines and sines are given.

    With h = size / 2, elements j and j + h are a pair, or 2j and 2j + 1 when `interleaved`: (a, b) becomes
    (a cos - b sin, b cos + a sin). The rest of the row passes. Tables of h columns serve both elements of a pair;
    tables of `size` columns have one for each, which interleaved rows don't take.
    """

    size: int
    interleaved: bool = False

    stem: ClassVar[str] = "rotary"
    ait: ClassVar[str | None] = "ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        x, cos, sin = inputs
        if not x.dtype.is_float or not x.dtype is cos.dtype is sin.dtype:
            raise Refused(f"rotary needs x, cos, sin of one float type, not {x}, {cos}, {sin}")
        if x.rank != 4:
            raise Refused(f"rotary needs x with 4 dims, not {x}")
        if self.size < 0 or self.size % 2:
            raise Refused(f"rotary turns an even number of elements, not {self.size}")
        facts.at_least(x.shape[3], self.size, "the rotated elements of a row")
        widths = (self.size // 2,) if self.interleaved else (self.size // 2, self.size)
        for table in (cos, sin):
            if not 1 <= table.rank <= 4 or table.shape[-1] not in widths or table.shape[-1] != cos.shape[-1]:
                wanted = " or ".join(map(str, widths))
                raise Refused(f"rotary needs tables with {wanted} columns, both alike, not {cos} and {sin}")
            for have, need in zip(reversed(table.shape[:-1]), reversed(x.shape[:3]), strict=False):
                if have != 1:
                    facts.broadcast_dims(have, need)
        return (x,)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x, cos, sin = (t.astype(np.float64) for t in inputs)
        half = self.size // 2
        if cos.shape[-1] == half:
            cos, sin = (np.concatenate([t, t], axis=-1) for t in (cos, sin))
        first, second = (
            (slice(0, self.size, 2), slice(1, self.size, 2))
            if self.interleaved
            else (slice(0, half), slice(half, self.size))
        )
        a, b = x[..., first], x[..., second]
        y = x.copy()
        with np.errstate(all="ignore"):
            y[..., first] = a * cos[..., :half] - b * sin[..., :half]
            y[..., second] = b * cos[..., half:] + a * sin[..., half:]
        return (y.astype(inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Dim:
        return product((3, *outputs[0].shape[:3], self.size))
