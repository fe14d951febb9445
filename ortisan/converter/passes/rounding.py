"""Finds the coarsest float type on the way to each output, which limits its accuracy."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from ortisan.converter.read.bodies import inner_nodes
from ortisan.registry.dtypes import DType

FINEST_FIRST = (DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
_FLOATS = {
    ir.DataType.DOUBLE: DType.FLOAT64,
    ir.DataType.FLOAT: DType.FLOAT32,
    ir.DataType.FLOAT16: DType.FLOAT16,
    ir.DataType.BFLOAT16: DType.BFLOAT16,
}


def coarsest(types: Iterable[DType | None]) -> DType | None:
    """The float type with the fewest digits, or None if there is no float type."""
    return max((one for one in types if one in FINEST_FIRST), key=FINEST_FIRST.index, default=None)


def rounded_outputs(model: ir.Model) -> dict[str, DType]:
    """Outputs that depend on a computed value of a coarser float type than their own, and that type.

    The model must be sorted and typed. Inputs and constants don't count, because they are the same in any runtime.
    """
    found: dict[ir.Value, DType | None] = {}
    for node in model.graph:
        nodes = [node, *inner_nodes(node)]
        types = [found.get(value) for each in nodes for value in each.inputs if value is not None]
        types += [_FLOATS.get(value.dtype) for each in nodes for value in each.outputs if value.dtype is not None]
        found.update(dict.fromkeys(node.outputs, coarsest(types)))
    result: dict[str, DType] = {}
    for value in model.graph.outputs:
        own = _FLOATS.get(value.dtype) if value.dtype is not None else None
        rounded = found.get(value)
        if own is not None and rounded is not None and rounded is not own and value.name:
            result[value.name] = rounded
    return result
