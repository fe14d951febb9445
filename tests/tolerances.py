"""How far results may be apart in tests: named levels, so that raising one is one line of a diff with its reason.

A level bounds the relative and the absolute error alike. Those without an element type are for float32. What a build
verifies by is `ortisan.checks.tolerance`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from ortisan.registry.dtypes import DType

Tolerance: TypeAlias = float | tuple[float, float]
"""A level, or (relative, absolute)."""

CLOSE_BY_DTYPE: Mapping[str, float] = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}
"""One op whose result is rounded once, or summed in another order."""
APPROXIMATE_BY_DTYPE: Mapping[str, float] = {"float64": 1e-7, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Long sums, softmaxes, and functions that ONNX Runtime approximates too."""

SAME = 1e-6
"""The same arithmetic on another path: before and after a pass, in another session."""
CLOSE = CLOSE_BY_DTYPE["float32"]
APPROXIMATE = APPROXIMATE_BY_DTYPE["float32"]
HALF = CLOSE_BY_DTYPE["float16"]
BLOCK = 2e-5
"""Several steps in a row: a normalization, attention, a layer or two of a small model."""
LAYERS = 5e-5
"""The logits of small transformers."""
WIDE = 1e-4
"""Values of very different sizes meet: wide random weights, steps of a decoder on its own cache, special values."""
WINOGRAD = 1e-3
"""Sums of hundreds of products of numbers up to 4, by an algorithm that takes differences of larger ones."""
NOTHING_SEEN = 2e-3
"""Attention that sees no key: logits are near -10000, where float32 has steps of 0.001."""
HALF_SOFTMAX = 5e-3
"""Attention in float16: both products round, and so does the softmax between them."""
HALF_SUMS = 2e-2
"""Products and sums in float16 and bfloat16, whose terms cancel."""


def assert_close(
    have: np.ndarray[Any, Any],
    want: np.ndarray[Any, Any],
    what: str,
    tolerance: Tolerance | None = None,
) -> None:
    """Shape and type are equal, and so are whole numbers; floats are within the tolerance, or close."""
    assert have.shape == want.shape, f"{what}: shape {have.shape}, expected {want.shape}"
    assert have.dtype == want.dtype, f"{what}: dtype {have.dtype}, expected {want.dtype}"
    if not DType.from_numpy(have.dtype).is_float:
        np.testing.assert_array_equal(have, want, err_msg=what)
        return
    if tolerance is None:
        tolerance = CLOSE_BY_DTYPE[str(have.dtype)]
    relative, absolute = tolerance if isinstance(tolerance, tuple) else (tolerance, tolerance)
    np.testing.assert_allclose(
        have.astype(np.float64), want.astype(np.float64), rtol=relative, atol=absolute, err_msg=what
    )
