"""Shapes across the border of control flow: what bodies are given.

What a body declares about its inputs are hints, which ONNX Runtime does not check: the shapes come from outside.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext

from ortisan.converter.read.bodies import bodies


def forget_body_inputs(model: ir.Model, *, scan_only: bool = False) -> None:
    """Drops the shapes of what is passed to bodies of Loop and Scan. The turn and the condition are single elements."""
    for node in model.graph.all_nodes():
        if node.domain != "" or node.op_type not in ("Loop", "Scan") or (scan_only and node.op_type == "Loop"):
            continue
        for _, body in bodies(node):
            for index, value in enumerate(body.inputs):
                if value.type is not None and not isinstance(value.type, ir.TensorType):
                    continue
                single = node.op_type == "Loop" and index < 2
                value.shape = _single(value.shape) if single else None


def _single(declared: ir.Shape | None) -> ir.Shape | None:
    """ONNX Runtime makes a scalar, or a vector of one element where that is declared."""
    rank = 0 if declared is None else len(declared)
    return ir.Shape([1] * rank) if rank < 2 else None


def infer_early_scan(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """The Scan of opset 8 adds a batch axis to what its body is given: only element types are taken from the body."""
    for _, body in bodies(node):
        for output, value in zip(node.outputs, body.outputs, strict=False):
            ctx.set_shape_and_dtype(output, None, value.dtype)
