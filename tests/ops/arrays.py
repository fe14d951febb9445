"""Arrays for op tests: odd shapes, special values, every dtype."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 1e30, -1e30, 88.9, -104.0, 0.5, 1.5, 2.5]
)


def values(
    *shape: int, dtype: Any = np.float32, seed: int = 0, low: float = -4, high: float = 4
) -> np.ndarray[Any, Any]:
    """Random numbers; ints in [low, high], floats uniform, bools fair."""
    rng = np.random.default_rng([seed, *shape])
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return rng.random(shape) < 0.5
    if kind.kind in "iu":
        return rng.integers(max(low, np.iinfo(kind).min), int(high) + 1, shape).astype(kind)
    return rng.uniform(low, high, shape).astype(np.float64).astype(kind)


def special(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    """Random numbers with NaN, infinities, zeros and extremes among them."""
    array = values(*shape, dtype=dtype, seed=seed).reshape(-1)
    count = min(len(SPECIAL), array.size)
    places = np.random.default_rng(seed).permutation(array.size)[:count]
    with np.errstate(all="ignore"):
        array[places] = SPECIAL[:count].astype(array.dtype)
    return array.reshape(shape)
