"""Rotary position embedding, written out.

    y = x * cos + concat(-x[h:], x[:h]) * sin      x [B,H,S,2h], cos and sin [.., 2h]

If only the first elements of each head are rotated, x is a slice, and the rest is concatenated to y again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter.pattern import OrValue, Var

from ortisan.converter.fuse.formula import Bindings, Formula, Fused, Mismatch
from ortisan.converter.fuse.scalar import constant_ints

_LAST = (-1, 3)


class RotaryEmbedding(Formula):
    op_type = "RotaryEmbedding"

    def forms(self) -> Sequence[Callable[..., Any]]:
        def partial(op: Any, whole: Any) -> Any:
            turned = op.Slice(whole, _allow_other_inputs=True, _outputs=["x"])
            rest = op.Slice(whole, _allow_other_inputs=True, _outputs=["rest"])
            return op.Concat(OrValue(_sums(op, turned)), rest)

        return [partial, lambda op, x: _sums(op, x)[0], lambda op, x: _sums(op, x)[1]]

    def read(self, values: Bindings, root: ir.Node) -> Fused:
        x, cos, sin = values["x"], values["cos"], values["sin"]
        size = _last_dim(x)
        _check_halves(values, size)
        for what, table in (("cosines", cos), ("sines", sin)):
            if table.shape is None or table.shape.rank() > 4 or table.shape[-1] != size:
                raise Mismatch(f"its {what} have shape {table.shape}, but its rows have {size} elements")
        if "whole" not in values:
            return Fused([x, cos, sin], {"size": size, "interleaved": 0})
        whole = values["whole"]
        axis = root.attributes.get_int("axis", 0)
        if axis not in _LAST or _range(x) != (0, size) or _range(values["rest"]) != (size, _last_dim(whole)):
            raise Mismatch("its rotated and its unrotated part do not make up one row")
        return Fused([whole, cos, sin], {"size": size, "interleaved": 0})


def _sums(op: Any, x: Any) -> list[Any]:
    """Both orders of the sum; each product has its table second or first."""
    low = op.Slice(x, _allow_other_inputs=True, _outputs=["low"])
    high = op.Slice(x, _allow_other_inputs=True, _outputs=["high"])
    swapped = op.Concat(op.Neg(high), low, _outputs=["swapped"])
    straight = OrValue([op.Mul(x, Var("cos")), op.Mul(Var("cos"), x)])
    crossed = OrValue([op.Mul(swapped, Var("sin")), op.Mul(Var("sin"), swapped)])
    return [op.Add(straight, crossed), op.Add(crossed, straight)]


def _check_halves(values: Bindings, size: int) -> None:
    swapped = values["swapped"].producer()
    if swapped is None or swapped.attributes.get_int("axis", 0) not in _LAST:
        raise Mismatch("its halves are not joined along the last axis")
    half = size // 2
    if size % 2 or _range(values["low"]) != (0, half) or _range(values["high"]) != (half, size):
        raise Mismatch(f"it does not swap the halves of its rows of {size} elements")


def _last_dim(x: ir.Value) -> int:
    if x.shape is None or x.shape.rank() != 4:
        raise Mismatch(f"its input ('{x.name}') has shape {x.shape}, expected 4 dims")
    size = x.shape[3]
    if not isinstance(size, int):
        raise Mismatch(f"the size of its rows is {size}, expected a number")
    return size


def _range(part: ir.Value) -> tuple[int, int] | None:
    """Start and end of a Slice of the last axis; None when it is something else."""
    node = part.producer()
    if node is None or node.inputs[0] is None or len(node.inputs) < 4:
        return None
    starts, ends, axes = (constant_ints(value) for value in node.inputs[1:4])
    steps = constant_ints(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] is not None else [1]
    if starts is None or ends is None or axes not in ([-1], [3]) or steps != [1]:
        return None
    size = _last_dim(node.inputs[0])
    start, end, _ = slice(starts[0], ends[0]).indices(size)
    return start, end
