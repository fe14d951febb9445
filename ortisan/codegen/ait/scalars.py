"""Scalar functions: which AITemplate has under a name of its own, and which are composed of those."""

from __future__ import annotations

from collections.abc import Callable

from ortisan.registry.builder import Builder
from ortisan.registry.graph import Value
from ortisan.registry.scalars import SCALARS

_NO_FUNCTION = frozenset({"CLAMP", "PRELU"})
FUNCTIONS = {row.name: row.ait for row in SCALARS.values() if row.ait and row.name not in _NO_FUNCTION}
"""Function -> AITemplate's FuncEnum."""

EXTRA_ARGUMENTS = {"SOFTPLUS": (1.0, 20.0)}
"""Numbers that AITemplate's function takes and ours has built in: beta and the threshold above which x is returned."""

Composition = Callable[[Builder, tuple[Value, ...], tuple[float, ...]], Value]


def _number(b: Builder, x: Value, number: float) -> Value:
    return b.number(number, x.dtype)


def _scaled(b: Builder, x: Value, factor: float) -> Value:
    return b.elementwise("MUL", x, _number(b, x, factor))


def _shifted(b: Builder, x: Value, term: float) -> Value:
    return b.elementwise("ADD", x, _number(b, x, term))


def _between(b: Builder, x: Value, low: Value, high: Value) -> Value:
    return b.elementwise("MIN", b.elementwise("MAX", x, low), high)


def _neg(b: Builder, inputs: tuple[Value, ...], params: tuple[float, ...]) -> Value:
    return _scaled(b, inputs[0], -1.0)


def _ceil(b: Builder, inputs: tuple[Value, ...], params: tuple[float, ...]) -> Value:
    return _scaled(b, b.elementwise("FLOOR", _scaled(b, inputs[0], -1.0)), -1.0)


def _clamp(b: Builder, inputs: tuple[Value, ...], params: tuple[float, ...]) -> Value:
    x, low, high = inputs
    return _between(b, x, low, high)


def _mish(b: Builder, inputs: tuple[Value, ...], params: tuple[float, ...]) -> Value:
    (x,) = inputs
    return b.elementwise("MUL", x, b.elementwise("TANH", b.elementwise("SOFTPLUS", x)))


def _hardsigmoid(b: Builder, inputs: tuple[Value, ...], params: tuple[float, ...]) -> Value:
    (x,), (alpha, beta) = inputs, params
    return _between(b, _shifted(b, _scaled(b, x, alpha), beta), _number(b, x, 0.0), _number(b, x, 1.0))


def _hardswish(b: Builder, inputs: tuple[Value, ...], params: tuple[float, ...]) -> Value:
    return b.elementwise("MUL", inputs[0], _hardsigmoid(b, inputs, (1 / 6, 0.5)))


def _selu(b: Builder, inputs: tuple[Value, ...], params: tuple[float, ...]) -> Value:
    alpha, gamma = params
    return _scaled(b, b.elementwise("ELU", inputs[0], params=(alpha,)), gamma)


def _prelu(b: Builder, inputs: tuple[Value, ...], params: tuple[float, ...]) -> Value:
    """max(x, 0) + slope * min(x, 0)."""
    x, slope = inputs
    zero = _number(b, x, 0.0)
    return b.elementwise(
        "ADD", b.elementwise("MAX", x, zero), b.elementwise("MUL", slope, b.elementwise("MIN", x, zero))
    )


def _cosh(b: Builder, inputs: tuple[Value, ...], params: tuple[float, ...]) -> Value:
    (x,) = inputs
    return _scaled(b, b.elementwise("ADD", b.elementwise("EXP", x), b.elementwise("EXP", _scaled(b, x, -1.0))), 0.5)


COMPOSITIONS: dict[str, Composition] = {
    "CEIL": _ceil,
    "CLAMP": _clamp,
    "COSH": _cosh,
    "HARDSIGMOID": _hardsigmoid,
    "HARDSWISH": _hardswish,
    "MISH": _mish,
    "NEG": _neg,
    "PRELU": _prelu,
    "SELU": _selu,
}
"""Function -> what it is in functions that AITemplate has."""
