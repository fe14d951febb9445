"""The table of scalar functions: one row each, with its numpy meaning, C++ function, AITemplate name and ONNX ops.

The C++ function of a row is `ortisan::fn::<cpp>` in templates/cpu/math/scalar.h. `params` are compile-time numbers that
follow the operands. Adding an elementwise function is adding a row here and a function there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ortisan.registry.dtypes import Array, DType

FLOATS = frozenset(d for d in DType if d.is_float)
INTEGERS = frozenset(d for d in DType if d.is_integer)
NUMBERS = FLOATS | INTEGERS
BOOL = frozenset({DType.BOOL})
ANY = NUMBERS | BOOL


@dataclass(frozen=True)
class Scalar:
    """`reference` gets float64 (or integer, or bool) arrays and the params.

    A row that a caller added brings its C++ along: `body` is that of a function of `arguments`.
    """

    name: str
    cpp: str
    reference: Callable[..., Any]
    onnx: tuple[str, ...] = ()
    arity: int = 1
    params: int = 0
    accepts: frozenset[DType] = FLOATS
    to_bool: bool = False
    ait: str | None = None
    discontinuous: bool = False
    """Whether a tiny change of an operand can change the result a lot."""
    expensive: bool = False
    """Whether it takes dozens of instructions on a CPU."""
    fast_path: bool = False
    """Whether there is a faster version for most float32 arguments, `ortisan::fn::common::<cpp>`, and a test that finds
    the others, `leaves_<cpp>` beside it."""
    arguments: tuple[str, ...] = ()
    body: str = ""


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + _erf(x / math.sqrt(2))))


def _fast_gelu(x: Array) -> Array:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.asarray(0.5 * x * (1 + np.tanh(inner)))


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return a / b
    safe = np.where(b == 0, 1, b)
    magnitude = np.abs(a) // np.abs(safe)
    return np.where(b == 0, 0, np.where((a < 0) != (safe < 0), -magnitude, magnitude)).astype(a.dtype)


def _mod(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b))).astype(a.dtype)


def _fmod(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    return np.where(b == 0, 0, np.fmod(a, np.where(b == 0, 1, b))).astype(a.dtype)


def _power(a: Array, b: Array) -> Array:
    return np.power(a, b) if a.dtype.kind == "f" else np.power(a, np.maximum(b, 0))


def _is_inf(x: Array, negative: float, positive: float) -> Array:
    return (np.isneginf(x) & bool(negative)) | (np.isposinf(x) & bool(positive))


def _shrink(x: Array, lambd: float, bias: float) -> Array:
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)).astype(x.dtype)


_row = Scalar

_TABLE = (
    # one operand
    _row("ABS", "abs", np.abs, ("Abs",), accepts=NUMBERS, ait="ABS"),
    _row("NEG", "neg", np.negative, ("Neg",), accepts=NUMBERS),
    _row("EXP", "exp", np.exp, ("Exp",), ait="EXP", expensive=True),
    _row("LOGE", "log", np.log, ("Log",), ait="LOGE", expensive=True, fast_path=True),
    _row("SQRT", "sqrt", np.sqrt, ("Sqrt",), ait="SQRT"),
    _row("RECIPROCAL", "reciprocal", lambda x: 1 / x, ("Reciprocal",), ait="RECIPROCAL"),
    _row("SIN", "sin", np.sin, ("Sin",), ait="SIN", expensive=True, fast_path=True),
    _row("COS", "cos", np.cos, ("Cos",), ait="COS", expensive=True, fast_path=True),
    _row("TAN", "tan", np.tan, ("Tan",), expensive=True, fast_path=True),
    _row("ASIN", "asin", np.arcsin, ("Asin",), expensive=True),
    _row("ACOS", "acos", np.arccos, ("Acos",), expensive=True),
    _row("ATAN", "atan", np.arctan, ("Atan",), expensive=True),
    _row("SINH", "sinh", np.sinh, ("Sinh",), expensive=True),
    _row("COSH", "cosh", np.cosh, ("Cosh",), expensive=True),
    _row("TANH", "tanh", np.tanh, ("Tanh",), ait="TANH", expensive=True),
    _row("ASINH", "asinh", np.arcsinh, ("Asinh",), expensive=True),
    _row("ACOSH", "acosh", np.arccosh, ("Acosh",), expensive=True),
    _row("ATANH", "atanh", np.arctanh, ("Atanh",), expensive=True),
    _row("ERF", "erf", _erf, ("Erf",), expensive=True),
    _row("SIGMOID", "sigmoid", _sigmoid, ("Sigmoid",), ait="SIGMOID", expensive=True),
    _row("RELU", "relu", lambda x: np.maximum(x, 0), ("Relu",), accepts=NUMBERS, ait="RELU"),
    _row("SIGN", "sign", np.sign, ("Sign",), accepts=NUMBERS, ait="SIGN", discontinuous=True),
    _row("FLOOR", "floor", np.floor, ("Floor",), ait="FLOOR", discontinuous=True),
    _row("CEIL", "ceil", np.ceil, ("Ceil",), discontinuous=True),
    _row("ROUND", "round", np.rint, ("Round",), discontinuous=True),
    _row("SOFTPLUS", "softplus", _softplus, ("Softplus",), ait="SOFTPLUS", expensive=True),
    _row("SOFTSIGN", "softsign", lambda x: x / (1 + np.abs(x)), ("Softsign",), ait="SOFTSIGN"),
    _row("GELU", "gelu", _gelu, ait="GELU", expensive=True),
    _row("FASTGELU", "fastgelu", _fast_gelu, ait="FASTGELU", expensive=True),
    _row("SILU", "silu", _silu, ait="SILU", expensive=True),
    _row("MISH", "mish", lambda x: x * np.tanh(_softplus(x)), ("Mish",), expensive=True),
    _row("HARDSWISH", "hardswish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), ("HardSwish",)),
    _row("ISNAN", "isnan", np.isnan, ("IsNaN",), to_bool=True),
    _row("NOT", "logical_not", np.logical_not, ("Not",), accepts=BOOL),
    _row("BITWISE_NOT", "bitwise_not", np.bitwise_not, ("BitwiseNot",), accepts=INTEGERS),
    # one operand and numbers
    _row("ISINF", "isinf", _is_inf, params=2, to_bool=True),
    _row(
        "ELU",
        "elu",
        lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
        params=1,
        ait="ELU",
        expensive=True,
    ),
    _row(
        "SELU",
        "selu",
        lambda x, a, g: g * np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
        params=2,
        expensive=True,
    ),
    _row(
        "CELU",
        "celu",
        lambda x, a: np.maximum(x, 0) + np.minimum(0, a * np.expm1(np.minimum(x, 0) / a)),
        params=1,
        ait="CELU",
        expensive=True,
    ),
    _row("LRELU", "lrelu", lambda x, a: np.where(x >= 0, x, a * x), params=1, ait="LRELU"),
    _row("HARDSIGMOID", "hardsigmoid", lambda x, a, b: np.clip(a * x + b, 0, 1), params=2),
    _row("THRESHOLDED_RELU", "thresholded_relu", lambda x, a: np.where(x > a, x, 0.0), params=1, discontinuous=True),
    _row("SHRINK", "shrink", _shrink, params=2, accepts=NUMBERS, discontinuous=True),
    # two operands
    _row("ADD", "add", np.add, ("Add",), 2, accepts=NUMBERS, ait="ADD"),
    _row("SUB", "sub", np.subtract, ("Sub",), 2, accepts=NUMBERS, ait="SUB"),
    _row("MUL", "mul", np.multiply, ("Mul",), 2, accepts=NUMBERS, ait="MUL"),
    _row("DIV", "div", _divide, ("Div",), 2, accepts=NUMBERS, ait="DIV"),
    _row("MOD", "mod", _mod, (), 2, accepts=INTEGERS),
    _row("FMOD", "fmod", _fmod, (), 2, accepts=NUMBERS, discontinuous=True),
    _row("POW", "pow", _power, (), 2, accepts=NUMBERS, ait="POW", expensive=True),
    _row("MAX", "max", np.maximum, (), 2, accepts=NUMBERS, ait="MAX"),
    _row("MIN", "min", np.minimum, (), 2, accepts=NUMBERS, ait="MIN"),
    _row("PRELU", "lrelu", lambda x, a: np.where(x >= 0, x, a * x), ("PRelu",), 2, accepts=NUMBERS, ait="LRELU"),
    _row("AND", "logical_and", np.logical_and, ("And",), 2, accepts=BOOL),
    _row("OR", "logical_or", np.logical_or, ("Or",), 2, accepts=BOOL),
    _row("XOR", "logical_xor", np.logical_xor, ("Xor",), 2, accepts=BOOL),
    _row("BITWISE_AND", "bitwise_and", np.bitwise_and, ("BitwiseAnd",), 2, accepts=INTEGERS),
    _row("BITWISE_OR", "bitwise_or", np.bitwise_or, ("BitwiseOr",), 2, accepts=INTEGERS),
    _row("BITWISE_XOR", "bitwise_xor", np.bitwise_xor, ("BitwiseXor",), 2, accepts=INTEGERS),
    _row("SHIFT_LEFT", "shift_left", np.left_shift, (), 2, accepts=INTEGERS),
    _row("SHIFT_RIGHT", "shift_right", np.right_shift, (), 2, accepts=INTEGERS),
    _row("EQ", "eq", np.equal, ("Equal",), 2, accepts=ANY, to_bool=True),
    _row("GT", "gt", np.greater, ("Greater",), 2, accepts=NUMBERS, to_bool=True),
    _row("GE", "ge", np.greater_equal, ("GreaterOrEqual",), 2, accepts=NUMBERS, to_bool=True),
    _row("LT", "lt", np.less, ("Less",), 2, accepts=NUMBERS, to_bool=True),
    _row("LE", "le", np.less_equal, ("LessOrEqual",), 2, accepts=NUMBERS, to_bool=True),
    # three operands
    _row("WHERE", "where", np.where, ("Where",), 3, accepts=ANY),
    _row(
        "CLAMP",
        "clamp",
        lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi),
        (),
        3,
        accepts=NUMBERS,
        ait="clamp",
    ),
)

SCALARS = {row.name: row for row in _TABLE}

SNIPPETS: dict[str, Scalar] = {}
"""Rows that callers added: registry/snippets.py."""


def find_row(name: str) -> Scalar:
    return SCALARS[name] if name in SCALARS else SNIPPETS[name]
