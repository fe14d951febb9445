"""Root mean square normalization, written out.

    y = x / sqrt(mean(x^2) + epsilon) * scale      the mean over the last axes, dims kept

x^2 is Pow(x, 2) or Mul(x, x); the quotient is a Div, or a Mul with a Reciprocal, a Div of 1, or a Pow. A model in half
precision computes all but the scale in float32, between two Casts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter.pattern import OrValue, Var

from ortisan.converter.fuse.formula import Bindings, Formula, Fused, Mismatch
from ortisan.converter.fuse.means import check_affine, last_axes
from ortisan.converter.fuse.scalar import require_near, require_rank_kept, require_scalar


class RMSNormalization(Formula):
    op_type = "RMSNormalization"

    def forms(self) -> Sequence[Callable[..., Any]]:
        return [
            lambda op, x: op.Mul(_normal(op, x), Var("scale")),
            lambda op, x: op.Mul(Var("scale"), _normal(op, x)),
            lambda op, narrow: op.Mul(_between_casts(op, narrow), Var("scale")),
            lambda op, narrow: op.Mul(Var("scale"), _between_casts(op, narrow)),
        ]

    def read(self, values: Bindings, root: ir.Node) -> Fused:
        x, scale = values.get("narrow", values.get("x")), values["scale"]
        assert x is not None
        if x.dtype != scale.dtype or x.dtype != root.outputs[0].dtype:
            raise Mismatch(f"its input is {x.dtype} and its scale {scale.dtype}")
        count = last_axes([values["mean"]], x, self.opset)
        for name, expected in (("two", 2.0), ("one", 1.0), ("power", -0.5)):
            if name in values:
                require_near(values[name], expected, f"the constant for {expected:g}")
        epsilon = require_scalar(values["epsilon"], "epsilon")
        require_rank_kept([values["epsilon"], *(values.get(name) for name in ("two", "one", "power"))], x)
        check_affine(x, count, scale=scale)
        return Fused([x, scale], {"axis": -count, "epsilon": epsilon})


def _between_casts(op: Any, narrow: Any) -> Any:
    return op.Cast(_normal(op, op.Cast(narrow)))


def _normal(op: Any, x: Any) -> Any:
    square = OrValue([op.Pow(x, Var("two")), op.Mul(x, x)])
    mean = op.ReduceMean(square, _allow_other_inputs=True, _outputs=["mean"])
    variance = op.Add(mean, Var("epsilon"))
    root = op.Sqrt(variance)
    inverse = OrValue([op.Reciprocal(root), op.Div(Var("one"), root), op.Pow(variance, Var("power"))])
    return OrValue([op.Mul(x, inverse), op.Mul(inverse, x), op.Div(x, root)])
