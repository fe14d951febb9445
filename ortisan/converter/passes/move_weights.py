"""Moves every weight by a few ulps, at random: the same model as far as rounding goes, for measuring its noise."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ortisan.registry.dtypes import Array

_FEWEST_ELEMENTS = 8
"""Smaller constants may be sizes or scales, which have to stay as they are."""
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)
_ULPS = {ir.DataType.FLOAT: 4, ir.DataType.DOUBLE: 4}
"""How far weights move: as much as a sum of some hundred terms is rounded. A sum of float16 is rounded once."""


def move_weights(model: ir.Model, seed: int = 0) -> int:
    """Changes `model` in place; gives how many tensors moved: initializers and constants, also inside of bodies."""
    rng = np.random.default_rng(seed)
    count = 0
    for graph in model.graphs():
        for value in graph.initializers.values():
            if (moved := _moved(value.const_value, rng)) is not None:
                value.const_value = moved
                count += 1
        for node in graph:
            if (moved := _moved(_constant(node), rng)) is not None:
                node.attributes["value"] = ir.AttrTensor("value", moved)
                count += 1
    return count


def _constant(node: ir.Node) -> ir.TensorProtocol | None:
    attribute = node.attributes.get("value") if (node.domain, node.op_type) == ("", "Constant") else None
    is_tensor = attribute is not None and attribute.type == ir.AttributeType.TENSOR
    return attribute.as_tensor() if attribute is not None and is_tensor else None


def _moved(tensor: ir.TensorProtocol | None, rng: np.random.Generator) -> ir.TensorProtocol | None:
    if tensor is None or tensor.dtype not in _FLOATS or tensor.size < _FEWEST_ELEMENTS:
        return None
    moved = move_array(tensor.numpy(), rng, _ULPS.get(tensor.dtype, 1))
    return ir.tensor(moved, dtype=tensor.dtype, name=tensor.name)


def move_array(array: Array, rng: np.random.Generator, ulps: int = 1) -> Array:
    """Each float becomes the next one up or down, at random, or one that is up to `ulps` away; 0, NaN, infinity and
    arrays of whole numbers stay.
    """
    if array.dtype.kind != "f" or _are_whole(array):
        return array
    ends = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
    steps = rng.integers(1, ulps + 1, array.shape)
    moved: Array = array
    for taken in range(ulps):
        can_move = np.isfinite(moved) & (moved != 0) & (taken < steps)
        moved = np.where(can_move, np.nextafter(moved, ends), moved).astype(array.dtype)
    return moved


def _are_whole(array: Array) -> bool:
    """Whether the floats are whole numbers, which may be indices: a neighbour of such a number is another index."""
    finite = array[np.isfinite(array)]
    return bool((finite == np.round(finite)).all())
