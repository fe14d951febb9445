"""`cache_write`: new rows written into a cache of keys or values, in place where the caller's memory allows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ortisan.registry.dims import Dim, Facts, is_static
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import DimValues, TensorType
from ortisan.registry.ops.move import Move
from ortisan.registry.refusal import Refused

__all__ = ["CacheWrite"]

CacheMode = Literal["linear", "circular"]


@dataclass(frozen=True)
class CacheWrite(Move):
    """The past with the update written over its rows from a start on, along `axis`. ONNX: TensorScatter.

    Inputs: past, update, and starts when they differ: int32 or int64 [B], added to `start`. Axis 0 is the batch.
    With `length`, the output has so many rows along the axis: the past at the front, zeros behind it where nothing is
    written. A linear write must lie within the output. In a circular one row r is row r mod the output's length, and
    of rows that meet the last wins.

    The output may be the memory of the past: then only the update is written. Nothing else may read the past in that
    call.
    """

    axis: int
    mode: CacheMode = "linear"
    length: Dim | None = None
    start: Dim = 0

    stem: ClassVar[str] = "cache_write"
    ait: ClassVar[str | None] = "concatenate; ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        past, update = inputs[:2]
        if past.dtype is not update.dtype or past.rank != update.rank:
            raise Refused(f"can't write {update} into {past}")
        if not 0 < self.axis < past.rank:
            raise Refused(f"a cache is written along an axis from 1 to {past.rank - 1}, not {self.axis}")
        for axis, (have, new) in enumerate(zip(past.shape, update.shape, strict=True)):
            if axis != self.axis:
                facts.equal(have, new, f"dims {axis} of the cache and the update")
        length = past.shape[self.axis] if self.length is None else self.length
        facts.at_least(length, past.shape[self.axis], "the length of the written cache")
        if len(inputs) > 2:
            self._check_starts(inputs[2], past, facts)
        elif self.mode == "linear":
            facts.at_least(self.start, 0, "the start of a cache write")
            facts.at_least(length, self.start + update.shape[self.axis], "the length of the written cache")
        elif is_static(length) and length == 0:
            facts.equal(update.shape[self.axis], 0, "rows of the update and of an empty circular cache")
        return (TensorType(past.dtype, (*past.shape[: self.axis], length, *past.shape[self.axis + 1 :])),)

    @staticmethod
    def _check_starts(starts: TensorType, past: TensorType, facts: Facts) -> None:
        if starts.dtype not in (DType.INT32, DType.INT64) or starts.rank != 1:
            raise Refused(f"the starts of a cache write are {starts}, expected one int32 or int64 per batch")
        facts.equal(starts.shape[0], past.shape[0], "starts and batch of the cache")

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        past, update = inputs[:2]
        length = past.shape[self.axis] if self.length is None else dims(self.length)
        out = np.zeros((*past.shape[: self.axis], length, *past.shape[self.axis + 1 :]), past.dtype)
        written, rows = np.moveaxis(out, self.axis, 1), np.moveaxis(update, self.axis, 1)
        written[:, : past.shape[self.axis]] = np.moveaxis(past, self.axis, 1)
        for batch in range(past.shape[0]):
            start = dims(self.start) + (int(inputs[2][batch]) if len(inputs) > 2 else 0)
            for i in range(rows.shape[1]):
                at = (start + i) % length if self.mode == "circular" and length else start + i
                if not 0 <= at < length:
                    raise IndexError(f"row {at} is written, but the cache has {length} rows")
                written[batch, at] = rows[batch, i]
        return (out,)
