"""Reading constants out of a matched formula."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ortisan.converter.fuse.formula import Mismatch


def constant_scalar(value: ir.Value | None) -> float | None:
    """The number, when `value` is a constant of one element."""
    if value is None or value.const_value is None or value.const_value.size != 1:
        return None
    return float(value.const_value.numpy().reshape(-1)[0])


def require_scalar(value: ir.Value, what: str) -> float:
    number = constant_scalar(value)
    if number is None:
        raise Mismatch(f"{what} ('{value.name}') is not a constant number")
    return number


def require_near(value: ir.Value, expected: float, what: str) -> None:
    """Checks that the constant is `expected` to the precision of its type, with some slack for hand-typed constants."""
    number = require_scalar(value, what)
    tolerance = 1e-6 if value.dtype != ir.DataType.FLOAT16 else 1e-3
    if not math.isclose(number, expected, rel_tol=tolerance):
        raise Mismatch(f"{what} is {number:.8g}, expected {expected:.8g}")


def require_rank_kept(constants: Sequence[ir.Value | None], x: ir.Value) -> None:
    """No constant has more dims than `x`: broadcasting must not change the rank."""
    if x.shape is None:
        if all(value is None or value.shape is None or value.shape.rank() == 0 for value in constants):
            return
        raise Mismatch(f"the rank of '{x.name}' is unknown")
    for value in constants:
        if value is not None and value.shape is not None and value.shape.rank() > x.shape.rank():
            raise Mismatch(f"the constant '{value.name}' has more dims than '{x.name}'")


def constant_ints(value: ir.Value | None) -> list[int] | None:
    if value is None or value.const_value is None:
        return None
    array = value.const_value.numpy()
    return [int(number) for number in array.reshape(-1)] if np.issubdtype(array.dtype, np.integer) else None
