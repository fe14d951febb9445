"""Error figures of one tensor against the tensor it should be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ortisan.checks.tolerance import Level, tolerance
from ortisan.registry.dtypes import Array, DType

_UNSIGNED_VIEWS: dict[int, Any] = {2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class Difference:
    """The error of a tensor against the expected one.

    `max_rel` is relative to the larger of |expected| and the root mean square of the whole tensor, so that elements
    near zero don't count more than the tensor's scale; `max_ulp` and `cosine` are NaN where they have no meaning. `off`
    is the share of elements beyond the tolerance "close" of the tensor's own type.
    """

    max_abs: float
    max_rel: float
    max_ulp: float
    cosine: float
    problem: str = ""
    """Why the tensors can't be compared element by element: shape, type, or where NaN and infinity occur."""
    off: float = 0.0

    def within(self, dtype: DType | None, level: Level) -> bool:
        return not self.problem and tolerance(dtype, level).accepts(self.max_abs, self.max_rel)


def dtype_of(array: Array) -> DType | None:
    """The element type, or None when Ortisan does not compute with it."""
    try:
        return DType.from_numpy(array.dtype)
    except KeyError:
        return None


def compare(actual: Array, expected: Array) -> Difference:
    if actual.dtype != expected.dtype:
        return _incomparable(f"the type is {actual.dtype}, expected {expected.dtype}")
    if actual.shape != expected.shape:
        return _incomparable(f"the shape is {list(actual.shape)}, expected {list(expected.shape)}")
    dtype = dtype_of(expected)
    if dtype is None or expected.size == 0:
        same = bool(np.array_equal(actual, expected))
        return Difference(0.0, 0.0, math.nan, math.nan) if same else _incomparable("the elements differ")
    a, b = (_wide(array, dtype) for array in (actual, expected))
    if dtype.is_float and (problem := _special_places(a, b)):
        return _incomparable(problem)
    ulp = _max_ulp(actual, expected) if dtype.is_float else math.nan
    finite = np.isfinite(b)
    if not finite.all():
        a, b = np.where(finite, a, 0.0), np.where(finite, b, 0.0)
    error = np.abs(a - b)
    scale = np.maximum(np.abs(b), math.sqrt(float(np.mean(np.square(b)))))
    relative = np.divide(error, scale, out=np.where(error > 0, math.inf, 0.0), where=scale > 0)
    bound = tolerance(dtype, "close")
    off = float(np.mean((error > bound.absolute) & (relative > bound.relative)))
    return Difference(float(error.max()), float(relative.max()), ulp, _cosine(a, b), off=off)


def compare_outputs(actual: Any, expected: Any) -> Difference:
    """`compare` for what a session gives: an array, or a sequence or map of these, whose worst part counts."""
    ours, theirs = flat(actual), flat(expected)
    if len(ours) != len(theirs):
        return _incomparable(f"it has {len(ours)} parts, expected {len(theirs)}")
    found = [compare(a, b) for a, b in zip(ours, theirs, strict=True)]
    return max(found, key=lambda each: (bool(each.problem), each.max_rel), default=compare(np.empty(0), np.empty(0)))


def flat(value: Any) -> list[Array]:
    """The arrays that a value is made of; a map is its keys in order and their values."""
    if isinstance(value, dict):
        keys = sorted(value)
        return [np.asarray(keys), *flat([value[key] for key in keys])]
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, (int, float, np.generic)) for item in value):
            return [np.asarray(value, np.float32 if isinstance(value[0], float) else None)]
        return [array for item in value for array in flat(item)]
    return [np.asarray(value)]


def _incomparable(problem: str) -> Difference:
    return Difference(math.inf, math.inf, math.inf, math.nan, problem, 1.0)


def _wide(array: Array, dtype: DType) -> Array:
    """Widens to a type that holds every element and difference: float64, or longdouble for large 64-bit integers."""
    if dtype in (DType.INT64, DType.UINT64) and array.size and int(np.abs(array.astype(np.float64)).max()) > 2**52:
        return array.astype(np.longdouble)
    return array.astype(np.float64)


def _special_places(actual: Array, expected: Array) -> str:
    for what, test in (("NaN", np.isnan), ("+infinity", np.isposinf), ("-infinity", np.isneginf)):
        differing = int(np.count_nonzero(test(actual) != test(expected)))
        if differing:
            return f"{what} is misplaced in {differing} element{'s' if differing > 1 else ''}"
    return ""


def _max_ulp(actual: Array, expected: Array) -> float:
    """The largest number of representable values between two elements that are finite."""
    view = _UNSIGNED_VIEWS[actual.dtype.itemsize]
    sign = view(1) << view(8 * actual.dtype.itemsize - 1)
    finite = np.isfinite(expected.astype(np.float64))
    ranks = []
    for array in (actual, expected):
        bits = np.ascontiguousarray(array[finite]).view(view)
        ranks.append(np.where(bits & sign, sign - (bits & ~sign), sign + bits))
    if not ranks[0].size:
        return 0.0
    return float((np.maximum(*ranks) - np.minimum(*ranks)).max())


def _cosine(a: Array, b: Array) -> float:
    product = float(np.vdot(a, b))
    norms = float(np.linalg.norm(a.ravel())) * float(np.linalg.norm(b.ravel()))
    return product / norms if norms > 0 else math.nan
