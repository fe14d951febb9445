"""Tolerances: three named levels per element type, and nothing in between.

A result is accepted if its absolute error, or its error relative to the tensor's scale, is within the bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ortisan.registry.dtypes import DType

Level: TypeAlias = Literal["exact", "close", "approximate"]


@dataclass(frozen=True)
class Tolerance:
    """Bounds of the absolute error, and of the error relative to the larger of |expected| and its root mean square."""

    absolute: float
    relative: float

    def accepts(self, absolute: float, relative: float) -> bool:
        return absolute <= self.absolute or relative <= self.relative


EXACT = Tolerance(0.0, 0.0)

_CLOSE = {
    DType.FLOAT64: Tolerance(1e-12, 1e-10),
    DType.FLOAT32: Tolerance(1e-6, 1e-4),
    DType.FLOAT16: Tolerance(1e-3, 1e-2),
    DType.BFLOAT16: Tolerance(1e-2, 8e-2),
}
_LOOSER = 10.0


def tolerance(dtype: DType | None, level: Level) -> Tolerance:
    """The bounds for an element type; whole numbers, booleans and strings are always exact."""
    close = _CLOSE.get(dtype) if dtype is not None else None
    if level == "exact" or close is None:
        return EXACT
    return close if level == "close" else Tolerance(close.absolute * _LOOSER, close.relative * _LOOSER)
