"""Images with the channels last, read between their pixels: `resize2d`, `grid_sample` and `roi_align`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ortisan.registry.dims import Dim, Facts, is_static
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import DimValues, Op, TensorType
from ortisan.registry.interpolation import COORDINATES, CROP, ROUNDINGS, Axis, cubic_weights
from ortisan.registry.refusal import Refused

__all__ = ["GridSample", "Resize2d", "RoiAlign"]

Mode = Literal["nearest", "linear", "cubic"]


@dataclass(frozen=True)
class Resize2d(Op):
    """x[N,H,W,C] with another height and width, the nearest pixel, or between 4 or 16 of them. torch: F.interpolate.

    `scales` are what the places are divided by; None is the quotient of the sizes. `crop` is the part that is wanted,
    from row and column to row and column in sizes of the image; places outside of it have the value `outside`.
    """

    mode: Mode
    size: tuple[Dim, Dim]
    scales: tuple[float | None, float | None]
    coordinates: str
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    excludes_outside: bool = False
    crop: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
    outside: float = 0.0

    stem: ClassVar[str] = "resize2d"
    ait: ClassVar[str | None] = "reshape, expand"

    @property
    def name(self) -> str:
        return f"resize2d_{self.mode}"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        (x,) = inputs
        if x.rank != 4 or (self.mode != "nearest" and not x.dtype.is_float):
            raise Refused(f"{self.name} needs images with 4 dims, of floats unless nearest, not {x}")
        for have, want in zip(x.shape[1:3], self.size, strict=True):
            if is_static(have) and have == 0 and want != 0:
                raise Refused(f"an image without pixels can't be resized to {want}")
            facts.at_least(want, 0, "a size")
        return (TensorType(x.dtype, (x.shape[0], *self.size, x.shape[3])),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x, outside = inputs[0], np.zeros((1, 1, 1, 1), bool)
        for index, (want, scale) in enumerate(zip(dims.shape(self.size), self.scales, strict=True)):
            have = x.shape[1 + index]
            factor = np.float32(scale if scale is not None else np.float32(want) / np.float32(max(have, 1)))
            start, end = np.float32(self.crop[index]), np.float32(self.crop[index + 2])
            x, beyond = self._along(x, 1 + index, Axis(have, want, factor, start, end))
            outside = outside | beyond.reshape((1, -1, 1, 1) if index == 0 else (1, 1, -1, 1))
        return (np.where(outside, np.array(self.outside), x).astype(inputs[0].dtype),)

    def _along(self, x: Array, axis: int, sizes: Axis) -> tuple[Array, Array]:
        """The image with one size changed, and which of its places are outside of the old one."""
        at, last = np.arange(sizes.want, dtype=np.float32), sizes.have - 1
        if self.coordinates == CROP or not sizes.is_unchanged:
            at = COORDINATES[self.coordinates](at, sizes).astype(np.float32)
        beyond = ((at < 0) | (at > last)) & (self.coordinates == CROP)
        if self.mode == "nearest":
            return np.take(x, np.clip(ROUNDINGS[self.rounding](at), 0, last).astype(np.int64), axis), beyond
        at = np.clip(at, 0, last) if self.mode == "linear" else at
        low = np.floor(at)
        share = (at - low).astype(np.float64)
        first, weights = (0, [1 - share, share]) if self.mode == "linear" else (-1, cubic_weights(share, self.cubic))
        places = [low.astype(np.int64) + first + index for index in range(len(weights))]
        if self.mode == "cubic" and self.excludes_outside:
            weights = [np.where((p >= 0) & (p <= last), w, 0) for p, w in zip(places, weights, strict=True)]
            weights = [w / np.sum(weights, axis=0) for w in weights]
        shape = (-1, *(1,) * (x.ndim - 1 - axis))
        parts = (
            np.take(x, np.clip(p, 0, last), axis).astype(np.float64) * w.reshape(shape)
            for p, w in zip(places, weights, strict=True)
        )
        return np.sum(list(parts), axis=0), beyond


@dataclass(frozen=True)
class GridSample(Op):
    """y[n,i,j] = x[N,H,W,C] at the place grid[n,i,j] = (column, row), the image being -1 to 1. torch: F.grid_sample.

    What is outside is 0, the nearest pixel of the border, or the image mirrored at its border.
    """

    mode: Mode
    padding: Literal["zeros", "border", "reflection"]
    align_corners: bool = False

    stem: ClassVar[str] = "grid_sample"
    ait: ClassVar[str | None] = None

    @property
    def name(self) -> str:
        return f"grid_sample_{self.mode}"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        x, grid = inputs
        if x.dtype not in (DType.FLOAT32, DType.FLOAT64) or grid.dtype is not x.dtype:
            raise Refused(f"grid_sample needs an image and a grid of one type, float32 or float64, not {x} and {grid}")
        if x.rank != 4 or grid.rank != 4:
            raise Refused(f"grid_sample needs an image and a grid with 4 dims, not {x} and {grid}")
        facts.equal(grid.shape[3], 2, "the numbers of a place")
        facts.equal(x.shape[0], grid.shape[0], "images and grids")
        for size in x.shape[1:3]:
            facts.at_least(size, 1, "the image of a grid_sample")
        return (TensorType(x.dtype, (*grid.shape[:3], x.shape[3])),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x, grid = inputs
        columns, rows = (self._places(grid[..., i], x.shape[2 - i]) for i in (0, 1))
        image = np.arange(x.shape[0]).reshape(-1, 1, 1)
        y = np.zeros((*grid.shape[:3], x.shape[3]))
        for row, down in rows:
            for column, right in columns:
                kept = (row >= 0) & (column >= 0)
                pixels = x[image, np.maximum(row, 0), np.maximum(column, 0)].astype(np.float64)
                y += np.where(kept[..., None], pixels * (down * right)[..., None], 0)
        return (y.astype(x.dtype),)

    def _places(self, grid: Array, size: int) -> list[tuple[Array, Array]]:
        """Indices along an axis, -1 for those that count as 0, and their weights."""
        half = grid.dtype.type(0.5)
        at = (grid + 1) * half * (size - 1) if self.align_corners else ((grid + 1) * size - 1) * half
        # A place further out is as good as that, and one that is no number is outside.
        at = np.clip(np.where(np.isnan(at), -1, at), -(2.0**22), 2.0**22).astype(grid.dtype)
        if self.mode == "nearest":
            return [(self._inside(np.rint(at), size), np.ones(at.shape))]
        if self.mode == "linear":
            at = self._moved(at, size)
        low = np.floor(at)
        share = (at - low).astype(np.float64)
        first, weights = (0, [1 - share, share]) if self.mode == "linear" else (-1, cubic_weights(share, -0.75))
        return [(self._inside(low + first + index, size), weight) for index, weight in enumerate(weights)]

    def _moved(self, at: Array, size: int) -> Array:
        """Places between pixels, moved into the image."""
        if self.padding == "border":
            return np.clip(at, 0, size - 1)
        return self._mirrored(at, size) if self.padding == "reflection" else at

    def _mirrored(self, at: Array, size: int) -> Array:
        low, high = (0, size - 1) if self.align_corners else (-0.5, size - 0.5)
        if high == low:
            return at * 0
        far = np.mod(at - low, 2 * (high - low))
        return np.asarray(np.where((at < low) | (at > high), low + np.minimum(far, 2 * (high - low) - far), at))

    def _inside(self, at: Array, size: int) -> Array:
        if self.padding == "zeros":
            return np.where((at >= 0) & (at < size), at, -1).astype(np.int64)
        return np.clip(self._moved(at, size), 0, size - 1).astype(np.int64)


@dataclass(frozen=True)
class RoiAlign(Op):
    """x[N,H,W,C] in regions rois[R,4] of the images indices[R], each in `size` bins. torchvision: ops.roi_align.

    A bin has the mean of samples between pixels, or the largest of their pixels times weights. `samples` of 0 are one
    a pixel.
    """

    kind: Literal["mean", "max"]
    size: tuple[int, int]
    samples: int
    scale: float
    half_pixel: bool

    stem: ClassVar[str] = "roi_align"
    ait: ClassVar[str | None] = None

    @property
    def name(self) -> str:
        return f"roi_align_{self.kind}"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        x, rois, indices = inputs
        floats = x.dtype in (DType.FLOAT32, DType.FLOAT64) and rois.dtype is x.dtype
        if not floats or indices.dtype is not DType.INT64:
            raise Refused(f"roi_align needs images and regions of one type, float32 or float64, not {x} and {rois}")
        if x.rank != 4 or rois.rank != 2 or indices.rank != 1 or min(self.size) < 1:
            raise Refused(f"roi_align needs images and numbers of regions, not {x}, {rois} and {indices}")
        facts.equal(rois.shape[1], 4, "the numbers of a region")
        facts.equal(rois.shape[0], indices.shape[0], "regions and their images")
        for size in x.shape[1:3]:
            facts.at_least(size, 1, "the image of a region")
        return (TensorType(x.dtype, (rois.shape[0], *self.size, x.shape[3])),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x, rois, indices = inputs
        x, dtype = x.astype(np.float64), x.dtype
        y = np.zeros((len(rois), *self.size, x.shape[3]))
        for number, (roi, index) in enumerate(zip(rois, indices, strict=True)):
            columns, rows = (self._samples(roi, axis, x.shape[2 - axis]) for axis in (0, 1))
            for i, j in np.ndindex(*self.size):
                pairs = [(row, column) for row in rows[i] for column in columns[j]]
                parts = [[a * b * x[index, p, q] for p, a in row for q, b in column] for row, column in pairs]
                if self.kind == "mean":
                    y[number, i, j] = sum((sum(part) for part in parts), np.zeros(x.shape[3])) / max(len(pairs), 1)
                elif pairs:
                    y[number, i, j] = np.max([np.max(part, axis=0) for part in parts], axis=0)
        return (y.astype(dtype),)

    def _samples(self, roi: Array, axis: int, extent: int) -> list[list[list[tuple[int, float]]]]:
        """For each bin along an axis its samples: two pixels with their weights; outside, both are 0."""
        number, bins = roi.dtype.type, self.size[1 - axis]
        half, shift = number(0.5), number(0.5 if self.half_pixel else 0)
        start, end = (roi[axis + 2 * i] * number(self.scale) - shift for i in (0, 1))
        width = (end - start if self.half_pixel else max(end - start, number(1))) / number(bins)
        count = self.samples or max(int(np.ceil(width)), 0)
        steps = [(k + half) * width / number(count) for k in range(count)]
        return [[_between(float(start + i * width + step), extent) for step in steps] for i in range(bins)]


def _between(at: float, extent: int) -> list[tuple[int, float]]:
    if not -1 <= at <= extent:
        return [(0, 0.0), (0, 0.0)]
    at = min(max(at, 0.0), extent - 1.0)
    low = int(at)
    return [(low, 1 - (at - low)), (min(low + 1, extent - 1), at - low)]
