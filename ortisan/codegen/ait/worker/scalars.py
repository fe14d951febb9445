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
