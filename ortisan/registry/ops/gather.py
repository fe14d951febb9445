"""Ops that read by index: `index_select` along an axis, `gather` elementwise, `gather_nd` by coordinates.

Indices are int32 or int64 and may count from the end; one outside the range is a run-time error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ortisan.registry.dims import Dim, Facts, is_static
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import DimValues, TensorType
from ortisan.registry.ops.move import Move
from ortisan.registry.refusal import Refused

__all__ = ["Gather", "GatherNd", "IndexSelect"]


def _check_indices(indices: TensorType) -> None:
    if indices.dtype not in (DType.INT32, DType.INT64):
        raise Refused(f"indices are {indices.dtype.value}, expected int32 or int64")


@dataclass(frozen=True)
class IndexSelect(Move):
    """x[..., indices, ...] on one axis; the indices' dims replace it. torch: x.index_select, F.embedding."""

    axis: int

    stem: ClassVar[str] = "index_select"
    ait: ClassVar[str | None] = "batch_gather, index_select, dynamic_slice; ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        x, indices = inputs
        _check_indices(indices)
        return (TensorType(x.dtype, (*x.shape[: self.axis], *indices.shape, *x.shape[self.axis + 1 :])),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        return (np.take(inputs[0], inputs[1], axis=self.axis),)

    def symbolic(self, inputs: Sequence[Array]) -> Array | None:
        x, indices = inputs
        if not all(is_static(index) for index in indices.flat):
            return None
        return np.asarray(np.take(x, indices.astype(np.int64), axis=self.axis), dtype=object)


@dataclass(frozen=True)
class Gather(Move):
    """y[i, j] = x[i, indices[i, j]] for axis 1, and so on. torch: x.gather(dim, indices)."""

    axis: int

    stem: ClassVar[str] = "gather"
    ait: ClassVar[str | None] = "gather; ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        x, indices = inputs
        _check_indices(indices)
        if x.rank != indices.rank:
            raise Refused(f"{x} and its indices {indices} differ in rank")
        for axis, (have, need) in enumerate(zip(x.shape, indices.shape, strict=True)):
            if axis != self.axis:
                facts.at_least(have, need, f"dim {axis} of the gathered tensor")
        return (TensorType(x.dtype, indices.shape),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x, indices = inputs
        window = tuple(slice(None) if axis == self.axis else slice(n) for axis, n in enumerate(indices.shape))
        wrapped = np.where(indices < 0, indices + x.shape[self.axis], indices)
        return (np.take_along_axis(x[window], wrapped, axis=self.axis),)


@dataclass(frozen=True)
class GatherNd(Move):
    """The last dim of the indices holds coordinates into the dims after `batch_dims`."""

    batch_dims: int

    stem: ClassVar[str] = "gather_nd"
    ait: ClassVar[str | None] = "ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        x, indices = inputs
        _check_indices(indices)
        depth: Dim = indices.shape[-1] if indices.rank else 0
        if not is_static(depth) or depth < 1 or self.batch_dims + depth > x.rank:
            raise Refused(f"coordinates {indices} don't fit {x}")
        for axis in range(self.batch_dims):
            facts.equal(x.shape[axis], indices.shape[axis], f"batch dims {axis} of data and indices")
        return (TensorType(x.dtype, (*indices.shape[:-1], *x.shape[self.batch_dims + depth :])),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x, indices = inputs
        depth = indices.shape[-1]
        grids = np.meshgrid(*(np.arange(n) for n in indices.shape[:-1]), indexing="ij", sparse=True)
        coordinates = (*grids[: self.batch_dims], *(indices[..., i] for i in range(depth)))
        return (x[coordinates].reshape(*indices.shape[:-1], *x.shape[self.batch_dims + depth :]),)
