"""Reductions: along the last axis, which the reduced axes are moved to and joined in."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.calls import CallWriter
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.rules import Reason, floats, static
from ortisan.registry.dims import product
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import Reduce
from ortisan.registry.refusal import Refused


def _reduce_rule(node: Node, bounds: Bounds) -> Reason:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, Reduce)
    if op.kind not in ("sum", "mean", "max", "min"):
        return f"AITemplate has no {op.name}"
    if op.first != op.last or op.last != len(x.shape) - 1:
        return f"AITemplate's {op.name} is taken along the last axis only"
    return floats(node) or static(x.shape[-1:], "the dim that is reduced")


def _compose_reduce(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """Along the last axis, which the reduced axes are moved to and joined in."""
    assert isinstance(op, Reduce)
    (x,) = inputs
    shape = op.infer([x.type], b.facts())[0].shape
    if x.dtype is DType.BOOL:
        raise Refused("AITemplate reduces no bool")
    others = [axis for axis in range(len(x.shape)) if axis not in op.axes]
    last = b.permute(x, (*others, *op.axes))
    size = product(x.shape[axis] for axis in op.axes)
    rows = b.reshape(last, (*([x.shape[axis] for axis in others] or [1]), size))
    return [b.reshape(_reduced(b, op.kind, rows), shape)]


def _reduced(b: Composer, kind: str, x: Value) -> Value:
    if kind == "l1":
        return row_reduce(b, "sum", b.elementwise("ABS", x))
    if kind == "l2":
        return b.elementwise("SQRT", row_reduce(b, "sum", b.elementwise("MUL", x, x)))
    if kind == "sum_square":
        return row_reduce(b, "sum", b.elementwise("MUL", x, x))
    if kind == "log_sum":
        return b.elementwise("LOGE", row_reduce(b, "sum", x))
    if kind == "log_sum_exp":
        top = row_reduce(b, "max", x)
        total = row_reduce(b, "sum", b.elementwise("EXP", b.elementwise("SUB", x, top)))
        return b.elementwise("ADD", top, b.elementwise("LOGE", total))
    return row_reduce(b, kind, x)


def row_reduce(b: Composer, kind: str, x: Value) -> Value:
    """Along the last axis, which stays as a dim of 1."""
    last = len(x.shape) - 1
    return b.add(Reduce(kind, last, last, True), x)


def _call_reduce(w: CallWriter, node: Node) -> None:
    assert isinstance(node.op, Reduce)
    make = {"dim": node.op.last, "keepdim": node.op.keepdim}
    w.add(node, f"reduce_{node.op.kind}", [w.read(node.inputs[0])], make)


OPS = (AitOp(Reduce, rule=_reduce_rule, compose=_compose_reduce, call=_call_reduce),)
