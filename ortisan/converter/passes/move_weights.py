"""Moves every weight by an ulp, at random: the same model as far as anyone can tell, for measuring its noise."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ortisan.registry.dtypes import Array

_FEWEST_ELEMENTS = 8
"""Smaller constants may be sizes or scales, which have to stay as they are."""
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)


def move_weights(model: ir.Model, seed: int = 0) -> int:
    """Changes `model` in place; gives how many tensors moved."""
    rng = np.random.default_rng(seed)
    count = 0
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.dtype not in _FLOATS or tensor.size < _FEWEST_ELEMENTS:
            continue
        value.const_value = ir.tensor(move_array(tensor.numpy(), rng), dtype=tensor.dtype, name=tensor.name)
        count += 1
    return count


def move_array(array: Array, rng: np.random.Generator) -> Array:
    """Each float becomes the next one up or down, at random; 0, NaN, infinity and arrays of whole numbers stay."""
    if array.dtype.kind != "f" or _are_whole(array):
        return array
    ends = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
    moved: Array = np.where(np.isfinite(array) & (array != 0), np.nextafter(array, ends), array).astype(array.dtype)
    return moved


def _are_whole(array: Array) -> bool:
    """Whether the floats are whole numbers, which may be indices: a neighbour of such a number is another index."""
    finite = array[np.isfinite(array)]
    return bool((finite == np.round(finite)).all())
