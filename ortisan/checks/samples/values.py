"""The arrays of a sample.

Floats are standard normal; an image is between 0 and 1, a sound a few tones. Whole numbers that end up as indices stay
inside their tables, those that are compared with constants are such constants, lengths are those of the rows they
measure; masks are 0 or 1 with padding on the right; other whole numbers and booleans are 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ortisan.checks.samples.indices import Indices, Rows, find_indices
from ortisan.checks.samples.roles import Roles, measured_axis
from ortisan.checks.samples.shapes import extent, extents
from ortisan.errors import UnsupportedError
from ortisan.registry.dtypes import Array

_LARGEST_INDEX = 1 << 20
_MOST_COUNTED = 4
_LOUDNESS = 0.3


class Values:
    """Draws the inputs of a graph at given sizes.

    `inputs` may be those of a copy of the graph in which more shapes are known than in the one that `roles` are of.
    """

    def __init__(self, inputs: Sequence[ir.Value], roles: Roles) -> None:
        self._inputs = inputs
        self._kinds = {
            kind: {value.name for value in getattr(roles, kind)} for kind in ("images", "waves", "masks", "lengths")
        }
        self._indices: dict[ir.Value, Indices] = {}

    def draw(self, sizes: Mapping[str, int], padded: bool, seed: int) -> dict[str, Array]:
        rng = np.random.default_rng(seed)
        return {value.name or "": np.asarray(self._draw(value, sizes, padded, seed, rng)) for value in self._inputs}

    def indices(self, value: ir.Value) -> Indices:
        if value not in self._indices:
            self._indices[value] = find_indices(value)
        return self._indices[value]

    def _draw(
        self, value: ir.Value, sizes: Mapping[str, int], padded: bool, seed: int, rng: np.random.Generator
    ) -> Array:
        kind = element_type(value)
        shape = extents(value, sizes)
        if kind == ir.DataType.STRING:
            return np.full(shape, "text", dtype=object)
        if value.name in self._kinds["masks"]:
            return _mask(shape, padded, rng).astype(kind.numpy())
        if value.name in self._kinds["images"]:
            pixels = rng.random(shape) if kind.is_floating_point() else rng.integers(0, 256, shape) % _span(kind)
            return np.asarray(pixels).astype(kind.numpy())
        if value.name in self._kinds["waves"]:
            return _sound(shape, rng).astype(kind.numpy())
        found = self.indices(value)
        if found.tables or found.codes or found.counts:
            return _coded(found, shape, sizes, seed, rng).astype(kind.numpy())
        if value.name in self._kinds["lengths"]:
            return self._lengths(value, shape, sizes).astype(kind.numpy())
        if kind.is_floating_point():
            return np.asarray(rng.standard_normal(shape)).astype(kind.numpy())
        return np.asarray(rng.integers(0, 2, shape)).astype(kind.numpy())

    def _lengths(self, value: ir.Value, shape: tuple[int, ...], sizes: Mapping[str, int]) -> Array:
        """The whole row for the first one, and less and less for the others."""
        measured = measured_axis(value, self._inputs)
        if measured is None or measured[0].shape is None:
            return np.ones(shape, np.int64)
        whole = extent(measured[0].shape[measured[1]], sizes)
        rows = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
        return np.maximum(whole - rows * whole // 8, min(whole, 1))


def element_type(value: ir.Value) -> ir.DataType:
    """The element type of a tensor, or of an optional one. Raises `UnsupportedError` for what no array can be."""
    kind = value.type
    if isinstance(kind, ir.OptionalType) and isinstance(kind.elem_type, ir.TensorType):
        kind = kind.elem_type
    if not isinstance(kind, ir.TensorType) or value.shape is None:
        what = f"of type {value.type}" if not isinstance(kind, ir.TensorType) else "of unknown rank"
        raise UnsupportedError(
            f"no sample can be generated for input '{value.name}' {what}; pass inputs (--inputs FILE.npz, or inputs=), "
            "or build without comparing (--no-verify, or verify=False)"
        )
    return kind.dtype


def _span(kind: ir.DataType) -> int:
    return 2 if kind == ir.DataType.BOOL else 128 if kind == ir.DataType.INT8 else 256


def _coded(
    found: Indices, shape: tuple[int, ...], sizes: Mapping[str, int], seed: int, rng: np.random.Generator
) -> Array:
    """Indices that fit all tables, or else numbers that the graph knows."""
    if found.tables:
        ranges = [way.range_for(_number(rows, sizes)) for rows, way in found.tables if rows is not None]
        low = max((low for low, _ in ranges), default=0)
        high = min((high for _, high in ranges), default=1)
        return np.asarray(rng.integers(low, max(low, min(high, low + _LARGEST_INDEX - 1)) + 1, shape))
    if found.counts:
        longest = min((_number(rows, sizes) for rows in found.counts if rows is not None), default=1)
        return np.full(shape, max(1, min(longest, _MOST_COUNTED)))
    if int(np.prod(shape)) == 1:
        return np.full(shape, found.codes[seed % len(found.codes)])
    return np.asarray(rng.choice(np.asarray((*found.codes, 0.0, 1.0)), shape))


def _number(rows: Rows, sizes: Mapping[str, int]) -> int:
    return max(1, extent(rows, sizes))


def _mask(shape: tuple[int, ...], padded: bool, rng: np.random.Generator) -> Array:
    """Ones; with padding, every row but the first ends in zeros (a single row loses its last third)."""
    if not padded or not shape:
        return np.ones(shape, np.int64)
    length = shape[-1]
    seen = rng.integers(1, length + 1, shape[:-1]) if length else np.zeros(shape[:-1], np.int64)
    seen = np.asarray(seen)
    if seen.size == 1:
        seen = np.full_like(seen, max(1, length - length // 3))
    else:
        seen.reshape(-1)[:1] = length
    return (np.arange(length) < seen[..., None]).astype(np.int64)


def _sound(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Three tones and a little noise."""
    steps = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape)
    tones = sum(np.sin(steps * rate) for rate in rng.uniform(0.02, 0.6, 3))
    return np.asarray(_LOUDNESS * (tones / 3 + 0.05 * rng.standard_normal(shape)))
