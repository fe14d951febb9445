"""Ops that make a tensor from dims and numbers: `size` (a shape as data), `full`, `arange`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ortisan.registry.dims import Dim, Facts, Shape, is_static
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import DimValues, TensorType
from ortisan.registry.ops.move import Move

__all__ = ["Arange", "Full", "Size"]


@dataclass(frozen=True)
class Size(Move):
    """The dims as an int64 vector. torch: torch.tensor(x.shape)."""

    dims: Shape

    stem: ClassVar[str] = "size"
    ait: ClassVar[str | None] = "ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        return (TensorType(DType.INT64, (len(self.dims),)),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        return (np.array(dims.shape(self.dims), np.int64),)

    def symbolic(self, inputs: Sequence[Array]) -> Array | None:
        result = np.empty(len(self.dims), dtype=object)
        result[:] = self.dims
        return result


@dataclass(frozen=True)
class Full(Move):
    """A tensor of one number. torch: torch.full(shape, value)."""

    shape: Shape
    value: float | int | bool
    dtype: DType

    stem: ClassVar[str] = "full"
    ait: ClassVar[str | None] = "ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        return (TensorType(self.dtype, self.shape),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        return (np.full(dims.shape(self.shape), self.value, self.dtype.numpy),)

    def symbolic(self, inputs: Sequence[Array]) -> Array | None:
        if self.dtype.is_float or not all(map(is_static, self.shape)):
            return None
        return np.full(self.shape, self.value, dtype=object)


@dataclass(frozen=True)
class Arange(Move):
    """`length` integers from `start` on, `step` apart. torch: torch.arange."""

    start: Dim
    step: Dim
    length: Dim
    dtype: DType

    stem: ClassVar[str] = "arange"
    ait: ClassVar[str | None] = "ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        return (TensorType(self.dtype, (self.length,)),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        steps = np.arange(dims(self.length), dtype=np.int64)
        return ((dims(self.start) + dims(self.step) * steps).astype(self.dtype.numpy),)
