"""`elementwise`: one scalar function over broadcast operands. torch: the function of that name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import sympy

from ortisan.registry.dims import Facts, floor_div, maximum, minimum, settle
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import DimValues, Op, TensorType
from ortisan.registry.refusal import Refused
from ortisan.registry.scalars import Scalar, find_row

__all__ = ["Cast", "Elementwise"]


class _Undecided(Exception):
    """A comparison of dims that is neither always true nor always false."""


def _decide(relation: Any) -> bool:
    if relation in (sympy.true, sympy.false):
        return bool(relation)
    raise _Undecided


# The functions that make sense on shape arithmetic. Dims are non-negative, so ONNX's truncating division is a floor.
_SYMBOLIC: dict[str, Callable[..., Any]] = {
    "EQ": lambda a, b: _decide(sympy.Eq(a, b)),
    "GT": lambda a, b: _decide(sympy.Gt(a, b)),
    "GE": lambda a, b: _decide(sympy.Ge(a, b)),
    "LT": lambda a, b: _decide(sympy.Lt(a, b)),
    "LE": lambda a, b: _decide(sympy.Le(a, b)),
    "NOT": lambda a: not a,
    "AND": lambda a, b: a and b,
    "OR": lambda a, b: a or b,
    "WHERE": lambda c, a, b: a if c else b,
    "NEG": lambda a: settle(-a),
    "ABS": lambda a: settle(abs(a)),
    "ADD": lambda a, b: settle(a + b),
    "SUB": lambda a, b: settle(a - b),
    "MUL": lambda a, b: settle(a * b),
    "DIV": floor_div,
    "MAX": maximum,
    "MIN": minimum,
}


@dataclass(frozen=True)
class Elementwise(Op):
    """One scalar function over broadcast operands. torch: the function of that name."""

    func: str
    params: tuple[float, ...] = ()

    stem: ClassVar[str] = "elementwise"
    ait: ClassVar[str | None] = "elementwise; ours"

    @property
    def row(self) -> Scalar:
        return find_row(self.func)

    @property
    def name(self) -> str:
        return f"elementwise.{self.func.lower()}"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        row = self.row
        operands = inputs[1:] if self.func == "WHERE" else inputs
        if self.func == "WHERE" and inputs[0].dtype is not DType.BOOL:
            raise Refused(f"the condition is {inputs[0].dtype.value}, not bool")
        dtype = operands[0].dtype
        if dtype not in row.accepts:
            raise Refused(f"{self.func.lower()} of {dtype.value} is not defined")
        for other in operands[1:]:
            if other.dtype is not dtype:
                raise Refused(f"operands differ in type: {dtype.value} and {other.dtype.value}")
        shape = facts.broadcast(*(t.shape for t in inputs))
        return (TensorType(DType.BOOL if row.to_bool else dtype, shape),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        dtype = inputs[1 if self.func == "WHERE" else 0].dtype
        wide = [x.astype(np.float64) if DType.from_numpy(x.dtype).is_float else x for x in inputs]
        with np.errstate(all="ignore"):
            result = np.asarray(self.row.reference(*wide, *self.params))
            return (result.astype(np.bool_ if self.row.to_bool else dtype),)

    def symbolic(self, inputs: Sequence[Array]) -> Array | None:
        function = _SYMBOLIC.get(self.func)
        if function is None:
            return None
        try:
            return np.asarray(np.frompyfunc(function, self.row.arity, 1)(*inputs), dtype=object)
        except _Undecided:
            return None


@dataclass(frozen=True)
class Cast(Op):
    """The same numbers in another type. torch: x.to(dtype)."""

    to: DType

    stem: ClassVar[str] = "cast"
    ait: ClassVar[str | None] = "cast; ours"

    @property
    def name(self) -> str:
        return f"cast.{self.to.value}"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        return (TensorType(self.to, inputs[0].shape),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        (x,) = inputs
        with np.errstate(all="ignore"):
            if self.to is DType.BOOL:
                return (x != 0,)
            if x.dtype.kind not in "fiub" or self.to is DType.BFLOAT16:  # ml_dtypes converts from float32
                x = x.astype(np.float32)
            return (x.astype(self.to.numpy),)

    def symbolic(self, inputs: Sequence[Array]) -> Array | None:
        return inputs[0] if self.to.is_integer else None
