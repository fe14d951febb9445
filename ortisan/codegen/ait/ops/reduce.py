"""Reductions: of floats over sizes that are known with AITemplate, along the last axis; others with kernels of ours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.calls import CallWriter
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.own import OwnKernel, along_axis, calling, storage
from ortisan.codegen.ait.rules import FLOATS, Reason, floats, static, takes_all
from ortisan.codegen.literals import flag
from ortisan.registry.dims import is_static, product
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import ArgReduce, CumSum, Reduce


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
    if x.dtype not in FLOATS or not all(is_static(x.shape[axis]) for axis in op.axes):
        return [_unlike_static(b, op, x)]
    others = [axis for axis in range(len(x.shape)) if axis not in op.axes]
    last = b.permute(x, (*others, *op.axes))
    size = product(x.shape[axis] for axis in op.axes)
    rows = b.reshape(last, (*([x.shape[axis] for axis in others] or [1]), size))
    return [b.reshape(_reduced(b, op.kind, rows), shape)]


def _unlike_static(b: Composer, op: Reduce, x: Value) -> Value:
    """A reduction for a kernel of ours, which takes any axes and sizes; only the last takes more than one pass."""
    if op.kind != "log_sum_exp":
        return b.add(op, x)
    top = b.add(Reduce("max", op.first, op.last, True), x)
    zero, lowest = b.number(0.0, x.dtype), b.number(-np.inf, x.dtype)
    finite = b.elementwise("AND", b.elementwise("GT", top, lowest), b.elementwise("LT", top, b.number(np.inf, x.dtype)))
    shift = b.elementwise("WHERE", finite, top, zero)
    total = b.add(Reduce("log_sum", op.first, op.last, True), b.elementwise("EXP", b.elementwise("SUB", x, shift)))
    return b.reshape(b.elementwise("ADD", total, shift), op.infer([x.type], b.facts())[0].shape)


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


def _ours(node: Node, bounds: Bounds) -> Reason:
    op = node.op
    assert isinstance(op, Reduce)
    return "log_sum_exp takes two passes" if op.kind == "log_sum_exp" else None


def _reduce_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    op, (x,) = node.op, node.inputs
    assert isinstance(op, Reduce)
    kind = {"max": "any", "min": "all"}[op.kind] if x.dtype is DType.BOOL else op.kind
    source = calling("reduce.cuh", "reduce", f"ortisan::reduction::{kind}", storage(x.dtype))
    sizes = (product(x.shape[: op.first]), product(x.shape[axis] for axis in op.axes), product(x.shape[op.last + 1 :]))
    attributes = {"kind": kind, "axes": op.axes, "keepdim": op.keepdim}
    return OwnKernel("reduce", source, node.inputs, sizes, attributes)


def _arg_reduce_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    op, (x,) = node.op, node.inputs
    assert isinstance(op, ArgReduce)
    source = calling("reduce.cuh", "arg_reduce", flag(op.kind == "max"), flag(op.last), storage(x.dtype))
    attributes = {"kind": op.kind, "axis": op.axis, "last": op.last, "keepdim": op.keepdim}
    return OwnKernel("arg_reduce", source, node.inputs, along_axis(x.shape, op.axis), attributes)


def _cumsum_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    op, (x,) = node.op, node.inputs
    assert isinstance(op, CumSum)
    source = calling("reduce.cuh", "cumsum", flag(op.exclusive), flag(op.reverse), storage(x.dtype))
    attributes = {"axis": op.axis, "exclusive": op.exclusive, "reverse": op.reverse}
    return OwnKernel("cumsum", source, node.inputs, along_axis(x.shape, op.axis), attributes)


OPS = (
    AitOp(ArgReduce, ours=takes_all, kernel=_arg_reduce_kernel),
    AitOp(CumSum, ours=takes_all, kernel=_cumsum_kernel),
    AitOp(Reduce, _reduce_rule, _compose_reduce, _call_reduce, _ours, _reduce_kernel),
)
