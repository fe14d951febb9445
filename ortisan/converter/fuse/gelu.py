"""Gelu, written out.

    erf:   0.5 * x * (1 + erf(x / sqrt 2))
    tanh:  0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))

The product of x, one half and the curve (1 + ...) is found in any order, the cube in any spelling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter.pattern import OrValue, Var

from ortisan.converter.fuse.formula import Bindings, Formula, Fused
from ortisan.converter.fuse.scalar import require_near, require_rank_kept

Curve = Callable[[Any, Any], Any]


class Gelu(Formula):
    op_type = "Gelu"

    def forms(self) -> Sequence[Callable[..., Any]]:
        return [form for curve in (_erf_curve, _tanh_curve) for form in _products(curve)]

    def read(self, values: Bindings, root: ir.Node) -> Fused:
        expected = _TANH_CONSTANTS if "slope" in values else _ERF_CONSTANTS
        for name, number in expected.items():
            if name in values:
                require_near(values[name], number, f"the constant for {number:.6g}")
        x = values["x"]
        require_rank_kept([value for name, value in values.items() if name != "x"], x)
        return Fused([x], {"approximate": "tanh" if "slope" in values else "none"})


_ERF_CONSTANTS = {"sqrt2": math.sqrt(2), "rsqrt2": math.sqrt(0.5), "one": 1.0, "half": 0.5}
_TANH_CONSTANTS = {
    "slope": math.sqrt(2 / math.pi),
    "cubic": 0.044715,
    "three": 3.0,
    "unit": 1.0,
    "one": 1.0,
    "half": 0.5,
}


def _products(curve: Curve) -> list[Callable[..., Any]]:
    """Yields every way to multiply x, the curve and one half, which as a constant is always the second operand."""
    return [
        lambda op, x: op.Mul(_swappable(op.Mul, x, curve(op, x)), Var("half")),
        lambda op, x: op.Mul(x, op.Mul(curve(op, x), Var("half"))),
        lambda op, x: op.Mul(op.Mul(curve(op, x), Var("half")), x),
        lambda op, x: op.Mul(op.Mul(x, Var("half")), curve(op, x)),
        lambda op, x: op.Mul(curve(op, x), op.Mul(x, Var("half"))),
    ]


def _swappable(operation: Any, a: Any, b: Any) -> Any:
    return OrValue([operation(a, b), operation(b, a)])


def _erf_curve(op: Any, x: Any) -> Any:
    return op.Add(op.Erf(OrValue([op.Div(x, Var("sqrt2")), op.Mul(x, Var("rsqrt2"))])), Var("one"))


def _tanh_curve(op: Any, x: Any) -> Any:
    slope, cubic = Var("slope"), Var("cubic")
    square = op.Mul(x, x)
    cube = OrValue([op.Pow(x, Var("three")), op.Mul(square, x), op.Mul(x, square)])
    sum_with_cube = _swappable(op.Add, x, op.Mul(cube, cubic))
    scaled_square = OrValue([op.Mul(op.Mul(x, cubic), x), op.Mul(x, op.Mul(x, cubic)), op.Mul(square, cubic)])
    raised_square = op.Add(scaled_square, Var("unit"))
    argument = OrValue(
        [
            op.Mul(sum_with_cube, slope),
            op.Mul(_swappable(op.Mul, x, raised_square), slope),
            _swappable(op.Mul, op.Mul(x, slope), raised_square),
        ]
    )
    return op.Add(op.Tanh(argument), Var("one"))
