"""What kernels of ours compute, in numpy: kind -> function of the attributes and the inputs, which gives the outputs.

Floats come in as float64. Dims among the attributes are texts, which `number` evaluates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ortisan.codegen.ait.worker.strided_meanings import attention, rotary

Array = Any
OwnMeaning = Callable[[dict[str, Any], list[Array], Callable[[Any], int]], list[Array]]


def _index_select(attributes: dict[str, Any], inputs: list[Array], number: Callable[[Any], int]) -> list[Array]:
    x, indices = inputs
    axis = attributes["axis"]
    size = x.shape[axis]
    wrapped = np.where(indices < 0, indices + size, indices)
    inside = (wrapped >= 0) & (wrapped < size)
    picked = np.take(x, np.where(inside, wrapped, 0), axis=axis)
    keep = inside.reshape(*(1,) * axis, *inside.shape, *(1,) * (x.ndim - axis - 1))
    return [np.where(keep, picked, np.zeros((), x.dtype))]


def _softmax(attributes: dict[str, Any], inputs: list[Array], number: Callable[[Any], int]) -> list[Array]:
    (x,), axis = inputs, attributes["axis"]
    if x.size == 0:
        return [x]
    shifted = x - x.max(axis=axis, keepdims=True)
    total = np.exp(shifted).sum(axis=axis, keepdims=True)
    return [shifted - np.log(total) if attributes["log"] else np.exp(shifted) / total]


def _rms_norm(attributes: dict[str, Any], inputs: list[Array], number: Callable[[Any], int]) -> list[Array]:
    x, axis = inputs[0], attributes["axis"]
    squares = (x * x).mean(axis=tuple(range(axis, x.ndim)), keepdims=True)
    y = x / np.sqrt(squares + attributes["epsilon"])
    return [y * inputs[1].reshape(x.shape[axis:]) if attributes["gamma"] else y]


OWN_MEANINGS: dict[str, OwnMeaning] = {
    "attention": attention,
    "index_select": _index_select,
    "rms_norm": _rms_norm,
    "rotary": rotary,
    "softmax": _softmax,
}
