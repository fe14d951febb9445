"""Numbers and flags as C++ has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ortisan.registry.dtypes import DType


def flag(value: bool) -> str:
    """A C++ literal."""
    return "true" if value else "false"


def literal(number: Any, dtype: DType) -> str:
    """A C++ literal of the compute type that has exactly this value."""
    cpp = dtype.compute_cpp
    if dtype is DType.BOOL:
        return flag(number)
    if dtype.is_integer:
        whole = int(number)
        if whole == np.iinfo(np.int64).min:
            return "limits<int64_t>::lowest"
        return f"{cpp}({whole}{'u' if whole > np.iinfo(np.int64).max else ''})"
    value = float(number)
    if np.isnan(value):
        return f"limits<{cpp}>::quiet_nan"
    if np.isinf(value):
        return f"limits<{cpp}>::{'infinity' if value > 0 else 'negative_infinity'}"
    return f"{cpp}({value.hex()})"
