"""Infers the shapes of a Loop's outputs, as far as they hold for any number of iterations.

A value that is carried from one iteration to the next keeps its shape only when the body gives back the very shape
that it takes. How often the body runs is not known: a condition may end the loop before its trip count does.
"""

from __future__ import annotations

from typing import TypeGuard

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext


def infer_loop(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Sets types and shapes of a Loop's outputs. Its trip count and its condition may be absent."""
    attribute = node.attributes.get("body")
    if attribute is None or attribute.type != ir.AttributeType.GRAPH:
        return
    body = attribute.as_graph()
    first, given, after = node.inputs[2:], body.inputs[2:], body.outputs[1:]
    steady = [_steady_shape(*values) for values in zip(first, given, after, strict=False)]
    settled = len(steady) == len(first) and all(shape is not None for shape in steady)
    for index, (output, value) in enumerate(zip(node.outputs, after, strict=False)):
        if value.type is not None and not isinstance(value.type, ir.TensorType):
            ctx.set_type(output, value.type)
        elif index < len(first):
            ctx.set_shape_and_dtype(output, steady[index] or _of_rank(ctx, value.shape), value.dtype)
        else:
            each = value.shape if settled else _of_rank(ctx, value.shape)
            stacked = None if each is None else ir.Shape([ctx.new_symbolic_dim(), *each])
            ctx.set_shape_and_dtype(output, stacked, value.dtype)


def mend_carried(model: ir.Model) -> bool:
    """Corrects what loop bodies wrongly inherited from before the loop; returns whether anything changed.

    The shape of a value that the body changes becomes unknown; a value that is not a tensor gets its type back.
    """
    found = False
    for graph in model.graphs():
        for node in graph:
            body = node.attributes.get("body") if node.op_type == "Loop" and node.domain == "" else None
            if body is None or body.type != ir.AttributeType.GRAPH:
                continue
            carried = zip(node.inputs[2:], body.as_graph().inputs[2:], body.as_graph().outputs[1:], strict=False)
            for first, given, after in carried:
                if first is None or first.type is None:
                    continue
                if not isinstance(first.type, ir.TensorType) and first.type != given.type:
                    given.type = first.type
                    found = True
                elif first.shape == given.shape and after.shape != given.shape and _is_known(given.shape):
                    given.shape = ir.Shape([None] * len(given.shape))
                    found = True
    return found


def _is_known(shape: ir.Shape | None) -> TypeGuard[ir.Shape]:
    """Whether more than its rank is known."""
    return shape is not None and any(isinstance(dim, int) or dim.value is not None for dim in shape)


def _steady_shape(first: ir.Value | None, given: ir.Value, after: ir.Value) -> ir.Shape | None:
    """The shape that a carried value has before the loop and after every iteration."""
    if first is None or after.shape is None or not first.shape == given.shape == after.shape:
        return None
    return after.shape


def _of_rank(ctx: ShapeInferenceContext, shape: ir.Shape | None) -> ir.Shape | None:
    return None if shape is None else ir.Shape([ctx.new_symbolic_dim() for _ in shape])
