"""Error figures and the tolerances they are judged by."""

from __future__ import annotations

import math
import re

import ml_dtypes
import numpy as np
import pytest

from ortisan.checks.compare import compare
from ortisan.checks.tolerance import EXACT, tolerance
from ortisan.registry.dtypes import DType

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", FLOATS)
def test_neighbours_are_one_ulp_apart(dtype: type) -> None:
    one = np.array([1.0, -1.0, 0.0], dtype)
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[one.dtype.itemsize]
    next_ = (one.view(bits) + bits(1)).view(dtype)
    assert compare(next_, one).max_ulp == 1
    assert compare(next_, one).within(DType.from_numpy(dtype), "close")
    assert not compare(next_, one).within(DType.from_numpy(dtype), "exact")


def test_ulps_across_zero() -> None:
    tiny = np.float32(1e-45)
    assert compare(np.array([tiny]), np.array([-tiny])).max_ulp == 2
    assert compare(np.float32([-0.0]), np.float32([0.0])).max_ulp == 0


def test_relative_errors_know_the_scale() -> None:
    expected = np.float32([1000.0, 1e-6])
    difference = compare(expected + np.float32([0, 1e-3]), expected)
    assert difference.max_rel == pytest.approx(1e-3 / math.sqrt(1000**2 / 2), rel=1e-3)
    assert difference.within(DType.FLOAT32, "close")


@pytest.mark.parametrize(
    "actual, expected, words",
    [
        (np.zeros(2, np.float32), np.zeros(2), "the type is float32, expected float64"),
        (np.zeros((1, 2)), np.zeros(2), r"the shape is \[1, 2\], expected \[2\]"),
        (np.array([math.nan, 1.0]), np.array([1.0, math.nan]), "NaN is misplaced in 2 elements"),
        (np.array([math.inf]), np.array([-math.inf]), "infinity is misplaced in 1 element"),
        (np.array(["a"], object), np.array(["b"], object), "the elements differ"),
    ],
)
def test_what_cant_be_compared(actual: np.ndarray, expected: np.ndarray, words: str) -> None:
    difference = compare(actual, expected)
    assert re.search(words, difference.problem)
    assert not difference.within(DType.FLOAT64, "approximate")


def test_nan_and_infinity_in_their_places() -> None:
    values = np.float32([math.nan, math.inf, 2.0])
    assert compare(values, values.copy()).max_abs == 0.0


def test_whole_numbers_are_exact() -> None:
    big = np.array([2**62, 1])
    assert compare(big, big.copy()).within(DType.INT64, "approximate")
    assert not compare(big + np.array([1, 0]), big).within(DType.INT64, "approximate")
    assert tolerance(DType.INT64, "approximate") == EXACT


def test_empty_tensors_agree() -> None:
    assert compare(np.zeros((0, 3)), np.zeros((0, 3))).max_abs == 0.0


def test_levels_widen() -> None:
    for dtype in (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64):
        assert EXACT.relative < tolerance(dtype, "close").relative < tolerance(dtype, "approximate").relative
