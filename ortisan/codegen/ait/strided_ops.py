"""Ops that read operands where they are: parts of products' results, a past and new keys, repeated masks and tables.

Ops of the dialect only, our kernels'. Their numpy meaning takes the views that the kernels take, by the same strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ortisan.codegen.ait.strided import Strided
from ortisan.registry.dims import Dim, Facts, settle, total
from ortisan.registry.dtypes import Array
from ortisan.registry.graph import DimValues, Op, TensorType
from ortisan.registry.ops import Attention, CacheWrite, Rotary

HEADS_AND_ROWS = (0, 2, 1, 3)


@dataclass(frozen=True)
class StridedAttention(Op):
    """`attention` of q, of keys and values in one or two parts that follow each other, and of a mask [B,H,S,T].

    The result is [B,S,H,E] when it is `rows_first`, else [B,H,S,E].
    """

    attention: Attention
    q: Strided
    keys: tuple[Strided, ...]
    values: tuple[Strided, ...]
    mask: Strided | None
    rows_first: bool

    stem: ClassVar[str] = "strided_attention"
    ait: ClassVar[str | None] = None

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        types = [self.q.type(inputs), _joined(self.keys, inputs), _joined(self.values, inputs)]
        if self.mask is not None:
            types.append(self.mask.type(inputs))
        (y,) = self.attention.infer(types, facts)
        return (TensorType(y.dtype, tuple(y.shape[axis] for axis in HEADS_AND_ROWS)) if self.rows_first else y,)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        k, v = (np.concatenate([p.array(inputs, dims) for p in parts], 2) for parts in (self.keys, self.values))
        operands = [self.q.array(inputs, dims), k, v]
        if self.mask is not None:
            operands.append(self.mask.array(inputs, dims))
        (y,) = self.attention.reference(operands, dims)
        return (np.ascontiguousarray(y.transpose(HEADS_AND_ROWS)) if self.rows_first else y,)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Dim:
        operands = [self.q.type(inputs), _joined(self.keys, inputs), _joined(self.values, inputs)]
        return self.attention.flops(operands, outputs)


@dataclass(frozen=True)
class StridedRotary(Op):
    """`rotary` of x, with tables in the shape of x's rows."""

    rotary: Rotary
    x: Strided
    cos: Strided
    sin: Strided

    stem: ClassVar[str] = "strided_rotary"
    ait: ClassVar[str | None] = None

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        return self.rotary.infer([part.type(inputs) for part in (self.x, self.cos, self.sin)], facts)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        return self.rotary.reference([part.array(inputs, dims) for part in (self.x, self.cos, self.sin)], dims)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Dim:
        return self.rotary.flops([part.type(inputs) for part in (self.x, self.cos, self.sin)], outputs)


@dataclass(frozen=True)
class StridedRows(Op):
    """[B,K,P,D] and [B,K,N,D] one after the other along the rows -> [B,K,P+N,D]: a cache with what a step adds."""

    parts: tuple[Strided, ...]

    stem: ClassVar[str] = "strided_rows"
    ait: ClassVar[str | None] = None

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        return (_joined(self.parts, inputs),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        return (np.concatenate([part.array(inputs, dims) for part in self.parts], 2),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Dim:
        return 0


@dataclass(frozen=True)
class StridedCacheWrite(Op):
    """`write` of an update that lies in the second input. Inputs: the past, that one, and starts if they differ."""

    write: CacheWrite
    update: Strided

    stem: ClassVar[str] = "strided_cache_write"
    ait: ClassVar[str | None] = None

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        return self.write.infer([inputs[0], self.update.type(inputs), *inputs[2:]], facts)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        return self.write.reference([inputs[0], self.update.array(inputs, dims), *inputs[2:]], dims)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Dim:
        return 0


def _joined(parts: Sequence[Strided], inputs: Sequence[TensorType]) -> TensorType:
    first = parts[0].shape
    return TensorType(parts[0].type(inputs).dtype, (*first[:2], settle(total(p.shape[2] for p in parts)), first[3]))
