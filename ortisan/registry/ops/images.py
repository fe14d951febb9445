"""`conv2d` and `pool2d` over images with the channels last. ONNX has them first; the lowering permutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ortisan.registry.dims import Dim, Facts, ceil_div, floor_div, minimum, product, settle
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import DimValues, Op, TensorType
from ortisan.registry.refusal import Refused

__all__ = ["Conv2d", "Pool2d"]

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]
"""Rows above, columns left, rows below, columns right."""


def extent(size: Dim, before: int, after: int, kernel: int, stride: int) -> Dim:
    """How many windows there are along an axis; `kernel` is from their first place to their last."""
    return settle(floor_div(size + (before + after - kernel), stride) + 1)


def _padded(x: Array, pads: Pads, value: float) -> Array:
    top, left, bottom, right = pads
    return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=value)


@dataclass(frozen=True)
class Conv2d(Op):
    """Convolution of x[N,H,W,C] with w[O,Kh,Kw,C/group], plus a bias[O] when there is one. torch: F.conv2d."""

    strides: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilations: Pair = (1, 1)
    group: int = 1
    bias: bool = False

    stem: ClassVar[str] = "conv2d"
    ait: ClassVar[str | None] = "conv2d, conv2d_bias, conv2d_depthwise, conv2d_depthwise_bias"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        x, w = inputs[:2]
        if not x.dtype.is_float or any(t.dtype is not x.dtype for t in inputs):
            raise Refused(f"conv2d needs one float type, not {', '.join(t.dtype.value for t in inputs)}")
        if x.rank != 4 or w.rank != 4:
            raise Refused(f"conv2d needs images and filters with 4 dims, not {x} and {w}")
        facts.equal(x.shape[3], w.shape[3] * self.group, "channels of the image and of the filters")
        facts.divisible(w.shape[0], self.group, "filters and groups")
        kernel = [(w.shape[axis] - 1) * d + 1 for axis, d in zip((1, 2), self.dilations, strict=True)]
        rows = extent(x.shape[1], self.pads[0], self.pads[2], kernel[0], self.strides[0])
        columns = extent(x.shape[2], self.pads[1], self.pads[3], kernel[1], self.strides[1])
        for count in (rows, columns):
            facts.at_least(count, 0, "the output of a convolution")
        return (TensorType(x.dtype, (x.shape[0], rows, columns, w.shape[0])),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x, w = (t.astype(np.float64) for t in inputs[:2])
        x = _padded(x, self.pads, 0.0)
        filters, height, width = w.shape[:3]
        rows = (x.shape[1] - (height - 1) * self.dilations[0] - 1) // self.strides[0] + 1
        columns = (x.shape[2] - (width - 1) * self.dilations[1] - 1) // self.strides[1] + 1
        y = np.zeros((x.shape[0], rows, columns, filters))
        inner, outer = w.shape[3], filters // self.group
        for i in range(height):
            for j in range(width):
                part = _strided(x, (i * self.dilations[0], j * self.dilations[1]), (rows, columns), self.strides)
                for g in range(self.group):
                    taps = w[g * outer : (g + 1) * outer, i, j]
                    y[..., g * outer : (g + 1) * outer] += part[..., g * inner : (g + 1) * inner] @ taps.T
        if self.bias:
            y = y + inputs[2].astype(np.float64)
        return (y.astype(inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Dim:
        return product((2, *inputs[1].shape[1:], *outputs[0].shape))


def _strided(x: Array, start: Pair, count: Pair, strides: Pair) -> Array:
    rows = slice(start[0], start[0] + (count[0] - 1) * strides[0] + 1, strides[0])
    columns = slice(start[1], start[1] + (count[1] - 1) * strides[1] + 1, strides[1])
    return x[:, rows, columns]


@dataclass(frozen=True)
class Pool2d(Op):
    """The largest element or the mean of each window of x[N,H,W,C]. torch: F.max_pool2d, F.avg_pool2d.

    A mean counts the padding when `counts_padding`. With `ceil`, windows that only begin inside of the padded image are
    there as well, and what they have beyond its end is in no mean. With `indices` a second output says where in its
    image [H,W] the first largest element is, a NaN being the largest.
    """

    kind: Literal["max", "mean"]
    kernel: Pair
    strides: Pair
    pads: Pads = (0, 0, 0, 0)
    counts_padding: bool = False
    dilations: Pair = (1, 1)
    ceil: bool = False
    indices: bool = False

    stem: ClassVar[str] = "pool2d"
    ait: ClassVar[str | None] = "max_pool2d, avg_pool2d"

    @property
    def name(self) -> str:
        return f"{self.kind}_pool2d{'_indices' if self.indices else ''}"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        (x,) = inputs
        if not x.dtype.is_float or x.rank != 4:
            raise Refused(f"pool2d needs images of floats with 4 dims, not {x}")
        spans = self._spans
        if any(pad >= size for pad, size in zip(self.pads, (*spans, *spans), strict=True)):
            raise Refused(f"the padding {self.pads} is as large as the window {self.kernel}")
        rows, columns = (self._count(x.shape[1 + axis], axis) for axis in (0, 1))
        for count in (rows, columns):
            facts.at_least(count, 0, "the output of a pool")
        pooled = (x.shape[0], rows, columns, x.shape[3])
        return (TensorType(x.dtype, pooled), *([TensorType(DType.INT64, pooled)] if self.indices else []))

    @property
    def _spans(self) -> Pair:
        """Rows and columns from a window's first to its last."""
        return self.dilations[0] * (self.kernel[0] - 1) + 1, self.dilations[1] * (self.kernel[1] - 1) + 1

    def _count(self, size: Dim, axis: int) -> Dim:
        """How many windows there are along an axis."""
        before, after, stride = self.pads[axis], self.pads[axis + 2], self.strides[axis]
        if not self.ceil:
            return extent(size, before, after, self._spans[axis], stride)
        begin_inside = floor_div(size + (before - 1), stride) + 1
        return minimum(settle(ceil_div(size + (before + after - self._spans[axis]), stride) + 1), settle(begin_inside))

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x = inputs[0].astype(np.float64)
        mean = self.kind == "mean"
        rows, columns = (int(self._count(x.shape[1 + axis], axis)) for axis in (0, 1))
        beyond = (0, 0, self._spans[0] + self.strides[0], self._spans[1] + self.strides[1])
        wide = _padded(_padded(x, self.pads, 0.0 if mean else -np.inf), beyond, 0.0 if mean else -np.inf)
        counts = _padded(_padded(np.ones_like(x), self.pads, 1.0 if self.counts_padding else 0.0), beyond, 0.0)
        places = [(i, j) for i in range(self.kernel[0]) for j in range(self.kernel[1])]
        starts = [(i * self.dilations[0], j * self.dilations[1]) for i, j in places]
        windows = [_strided(wide, place, (rows, columns), self.strides) for place in starts]
        if not mean:
            y = np.max(windows, axis=0).astype(inputs[0].dtype)
            return (y, self._places(windows, starts, x.shape[2])) if self.indices else (y,)
        total = np.sum([_strided(counts, place, (rows, columns), self.strides) for place in starts], axis=0)
        return ((np.sum(windows, axis=0) / total).astype(inputs[0].dtype),)

    def _places(self, windows: Sequence[Array], starts: Sequence[Pair], width: int) -> Array:
        first = np.argmax(windows, axis=0)
        rows, columns = np.ogrid[: first.shape[1], : first.shape[2]]
        down, right = (np.array([start[axis] for start in starts])[first] for axis in (0, 1))
        row = down + (rows * self.strides[0] - self.pads[0])[..., None]
        column = right + (columns * self.strides[1] - self.pads[1])[..., None]
        return np.asarray(row * width + column, np.int64)
