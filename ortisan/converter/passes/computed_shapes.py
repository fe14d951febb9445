"""Reshape to a shape that is computed, and Concat of inputs without elements: what their rules can't know.

An element of a computed shape that is no dim of anything may be -1. An input of Concat that has no elements is skipped
by ONNX Runtime, whatever its dims are.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext

_MOST_NODES = 500


def correct_reshape(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Forgets the dims that the rule takes from elements of which it is not known that they are dims."""
    shape, output = (node.inputs[1] if len(node.inputs) > 1 else None), node.outputs[0]
    elements = None if shape is None else ctx.get_symbolic_value(shape)
    if shape is None or elements is None or output.shape is None:
        return
    named = set().union(*map(_symbols, elements))
    unproven = named - _dims_read(shape) if named else named
    if unproven:
        output.shape = ir.Shape([ctx.new_symbolic_dim() if _symbols(dim) & unproven else dim for dim in output.shape])


def correct_concat(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Forgets all dims where an input is empty and does not fit the others."""
    output, shapes = node.outputs[0], [value.shape for value in node.inputs if value is not None and value.shape]
    axis = node.attributes.get_int("axis", 0)
    rests = {str([dim for place, dim in enumerate(shape) if place != axis % len(shape)]) for shape in shapes}
    if len(rests) > 1 and any(0 in shape.dims for shape in shapes) and output.shape is not None:
        output.shape = ir.Shape([ctx.new_symbolic_dim() for _ in output.shape])


def _symbols(dim: int | ir.SymbolicDim) -> set[str]:
    return set() if isinstance(dim, int) else set(dim.free_symbols())


def _dims_read(value: ir.Value) -> set[str]:
    """The symbols of all shapes that a value is computed from."""
    found: set[str] = set()
    waiting, seen = [value], {value}
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop().producer()
        if node is None:
            continue
        for read in node.inputs:
            if read is None or read in seen:
                continue
            seen.add(read)
            if node.op_type not in ("Shape", "Size"):
                waiting.append(read)
            elif read.shape is not None:
                found = found.union(*map(_symbols, read.shape))
    return found
