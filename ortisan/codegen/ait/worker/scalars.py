"""What AITemplate's scalar functions compute."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def fast_gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def hardswish(x: Array) -> Array:
    return x * np.clip(x / 6 + 0.5, 0, 1)


def _softplus(x: Array, beta: Array, threshold: Array) -> Array:
    return np.where(x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta)


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "DIV": np.divide,
    "TANH": np.tanh,
    "COS": np.cos,
    "SIN": np.sin,
    "SIGN": np.sign,
    "ABS": np.abs,
    "LOGE": np.log,
    "EXP": np.exp,
    "SQRT": np.sqrt,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "SIGMOID": sigmoid,
    "LRELU": lambda x, slope: np.where(x > 0, x, slope * x),
    "HARDTANH": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "RELU": relu,
    "SILU": lambda x: x * sigmoid(x),
    "POW": np.power,
    "GELU": gelu,
    "FASTGELU": fast_gelu,
    "SOFTPLUS": _softplus,
    "ELU": lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
    "SOFTSIGN": lambda x: x / (1 + np.abs(x)),
    "CELU": lambda x, a: np.maximum(x, 0) + np.minimum(0, a * np.expm1(np.minimum(x, 0) / a)),
    "FLOOR": np.floor,
    "LOG1P": np.log1p,
    "RECIPROCAL": lambda x: 1 / x,
}


def _divided(a: Array, b: Array) -> Array:
    """Integers toward zero, and 0 where b is."""
    if a.dtype.kind == "f":
        return a / b
    safe = np.where(b == 0, 1, b)
    return np.where(b == 0, 0, (a - np.fmod(a, safe)) // safe)


def _remainder(function: Callable[..., Array]) -> Callable[..., Array]:
    def remainder(a: Array, b: Array) -> Array:
        return function(a, b) if a.dtype.kind == "f" else np.where(b == 0, 0, function(a, np.where(b == 0, 1, b)))

    return remainder


def _isinf(x: Array, negative: float, positive: float) -> Array:
    return (np.isneginf(x) & bool(negative)) | (np.isposinf(x) & bool(positive))


def _shrink(x: Array, limit: float, bias: float) -> Array:
    return np.where(x < -limit, x + bias, np.where(x > limit, x - bias, 0))


CHAIN_FUNCTIONS: dict[str, Callable[..., Array]] = {
    **FUNCTIONS,
    "ACOS": np.arccos,
    "ACOSH": np.arccosh,
    "AND": np.logical_and,
    "ASIN": np.arcsin,
    "ASINH": np.arcsinh,
    "ATAN": np.arctan,
    "ATANH": np.arctanh,
    "BITWISE_AND": np.bitwise_and,
    "BITWISE_NOT": np.bitwise_not,
    "BITWISE_OR": np.bitwise_or,
    "BITWISE_XOR": np.bitwise_xor,
    "CEIL": np.ceil,
    "CLAMP": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "COSH": np.cosh,
    "DIV": _divided,
    "EQ": np.equal,
    "ERF": _erf,
    "FMOD": _remainder(np.fmod),
    "GE": np.greater_equal,
    "GT": np.greater,
    "HARDSIGMOID": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "HARDSWISH": hardswish,
    "ISINF": _isinf,
    "ISNAN": np.isnan,
    "LE": np.less_equal,
    "LT": np.less,
    "MISH": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "MOD": _remainder(np.mod),
    "NEG": np.negative,
    "NOT": np.logical_not,
    "OR": np.logical_or,
    "POW": lambda a, b: np.power(a, b if a.dtype.kind == "f" else np.maximum(b, 0)),
    "PRELU": lambda x, slope: np.where(x >= 0, x, slope * x),
    "ROUND": np.rint,
    "SELU": lambda x, a, g: g * np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
    "SHIFT_LEFT": np.left_shift,
    "SHIFT_RIGHT": np.right_shift,
    "SHRINK": _shrink,
    "SINH": np.sinh,
    "SOFTPLUS": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "TAN": np.tan,
    "THRESHOLDED_RELU": lambda x, a: np.where(x > a, x, 0.0),
    "WHERE": np.where,
    "XOR": np.logical_xor,
}
"""What chains of ours compute, by the names of the op graph's functions."""

EPILOGUES: dict[str, Callable[[Array], Array]] = {
    "relu": relu,
    "gelu": gelu,
    "fast_gelu": fast_gelu,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "swish": lambda x: x * sigmoid(x),
    "hardswish": hardswish,
}
"""What follows a product in one kernel, by the word in the op's name."""
