"""Layer normalization, written out.

    d = x - mean(x);  y = d / sqrt(mean(d^2) + epsilon) * scale [+ bias]     means over the last axes, dims kept

d^2 is Pow(d, 2) or Mul(d, d); the quotient is a Div or a Mul with a Reciprocal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter.pattern import OrValue, Var

from ortisan.converter.fuse.formula import Bindings, Formula, Fused
from ortisan.converter.fuse.means import check_affine, last_axes
from ortisan.converter.fuse.scalar import require_near, require_rank_kept, require_scalar


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
        count = last_axes([values["mean"], values["variance"]], x, self.opset)
        if "two" in values:
            require_near(values["two"], 2.0, "the exponent")
        epsilon = require_scalar(values["epsilon"], "epsilon")
        require_rank_kept([values["epsilon"], values.get("two")], x)
        check_affine(x, count, scale=scale, bias=bias)
        inputs = [x, scale] if bias is None else [x, scale, bias]
        return Fused(inputs, {"axis": -count, "epsilon": epsilon})


def _scaled(op: Any, x: Any) -> Any:
    return OrValue([op.Mul(_normal(op, x), Var("scale")), op.Mul(Var("scale"), _normal(op, x))])


def _normal(op: Any, x: Any) -> Any:
    mean = op.ReduceMean(x, _allow_other_inputs=True, _outputs=["mean"])
    centered = op.Sub(x, mean)
    square = OrValue([op.Pow(centered, Var("two")), op.Mul(centered, centered)])
    variance = op.ReduceMean(square, _allow_other_inputs=True, _outputs=["variance"])
    deviation = op.Sqrt(op.Add(variance, Var("epsilon")))
    return OrValue([op.Div(centered, deviation), op.Mul(centered, op.Reciprocal(deviation))])
