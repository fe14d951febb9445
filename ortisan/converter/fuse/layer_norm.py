"""Layer normalization, written out.

    d = x - mean(x);  y = d / sqrt(mean(d^2) + epsilon) * scale [+ bias]     means over the last axes, dims kept

d^2 is Pow(d, 2) or Mul(d, d); the quotient is a Div or a Mul with a Reciprocal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter.pattern import OrValue, Var

from ortisan.converter.fuse.formula import Bindings, Formula, Fused, Mismatch
from ortisan.converter.fuse.scalar import constant_ints, require_near, require_rank_kept, require_scalar


class LayerNormalization(Formula):
    op_type = "LayerNormalization"

    def forms(self) -> Sequence[Callable[..., Any]]:
        return [
            lambda op, x: op.Add(_scaled(op, x), Var("bias")),
            lambda op, x: op.Add(Var("bias"), _scaled(op, x)),
            lambda op, x: op.Mul(_normal(op, x), Var("scale")),
            lambda op, x: op.Mul(Var("scale"), _normal(op, x)),
        ]

    def read(self, values: Bindings, root: ir.Node) -> Fused:
        x, scale, bias = values["x"], values["scale"], values.get("bias")
        if x.shape is None:
            raise Mismatch(f"the rank of '{x.name}' is unknown")
        rank = x.shape.rank()
        axes = _axes(values["mean"], rank, self.opset)
        if axes != _axes(values["variance"], rank, self.opset):
            raise Mismatch("its two means are over different axes")
        if axes != list(range(rank - len(axes), rank)) or not axes:
            raise Mismatch(f"its means are over axes {axes} of {rank}, not over the last ones")
        if "two" in values:
            require_near(values["two"], 2.0, "the exponent")
        epsilon = require_scalar(values["epsilon"], "epsilon")
        require_rank_kept([values["epsilon"], values.get("two")], x)
        expected = ir.Shape(list(x.shape)[axes[0] :])
        for what, value in (("scale", scale), ("bias", bias)):
            if value is not None and (value.shape is None or value.shape != expected):
                raise Mismatch(f"its {what} has shape {value.shape}, expected {expected}")
        inputs = [x, scale] if bias is None else [x, scale, bias]
        return Fused(inputs, {"axis": -len(axes), "epsilon": epsilon})


def _scaled(op: Any, x: Any) -> Any:
    return OrValue([op.Mul(_normal(op, x), Var("scale")), op.Mul(Var("scale"), _normal(op, x))])


def _normal(op: Any, x: Any) -> Any:
    mean = op.ReduceMean(x, _allow_other_inputs=True, _outputs=["mean"])
    centered = op.Sub(x, mean)
    square = OrValue([op.Pow(centered, Var("two")), op.Mul(centered, centered)])
    variance = op.ReduceMean(square, _allow_other_inputs=True, _outputs=["variance"])
    deviation = op.Sqrt(op.Add(variance, Var("epsilon")))
    return OrValue([op.Div(centered, deviation), op.Mul(centered, op.Reciprocal(deviation))])


def _axes(mean: ir.Value, rank: int, opset: int) -> list[int]:
    """The axes of a ReduceMean, counted from the front. They are an input from opset 18 on."""
    node = mean.producer()
    if node is None or node.attributes.get_int("keepdims", 1) != 1:
        raise Mismatch("a mean drops its dims")
    if opset >= 18:
        axes = constant_ints(node.inputs[1] if len(node.inputs) > 1 else None)
    else:
        declared = node.attributes.get_ints("axes", None)
        axes = None if declared is None else list(declared)
    if axes is None:
        raise Mismatch("the axes of a mean are not constants")
    return sorted(axis % rank for axis in axes)
