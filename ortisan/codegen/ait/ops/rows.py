"""Softmax and normalisations."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.calls import CallWriter
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.ops.reduce import row_reduce
from ortisan.codegen.ait.own import OwnKernel, along_axis, calling, float_bits, storage
from ortisan.codegen.ait.program import shape
from ortisan.codegen.ait.rules import Reason, floats, static, takes_floats
from ortisan.codegen.literals import flag
from ortisan.registry.dims import product
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import GroupNorm, LayerNorm, RmsNorm, Softmax

_WIDEST = 3840


def _softmax_rule(node: Node, bounds: Bounds) -> Reason:
    (x,) = node.inputs
    op = node.op
    assert isinstance(op, Softmax)
    if op.log:
        return "AITemplate has no logarithm of a softmax"
    if len(x.shape) < 2:
        return "AITemplate's softmax needs two dims"
    axis = op.axis % len(x.shape)
    if reason := floats(node) or static(x.shape[axis:], "the dims that a softmax runs over and those behind them"):
        return reason
    if x.shape[axis] > _WIDEST:
        return f"AITemplate's softmax takes no maximum below 0 in rows of more than {_WIDEST} elements"
    return None


def _compose_softmax(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """log_softmax is x - max - log(sum(exp(x - max))): the logarithm of a softmax underflows."""
    assert isinstance(op, Softmax)
    (x,) = inputs
    if len(x.shape) == 1:
        return [b.reshape(_compose_softmax(b, Softmax(1, op.log), (b.reshape(x, (1, *x.shape)),))[0], x.shape)]
    axis = op.axis % len(x.shape)
    if not op.log:
        return [b.add(Softmax(axis), x)]
    last = len(x.shape) - 1
    order = [*(a for a in range(last + 1) if a != axis), axis]
    rows = b.permute(x, order)
    shifted = b.elementwise("SUB", rows, row_reduce(b, "max", rows))
    total = row_reduce(b, "sum", b.elementwise("EXP", shifted))
    y = b.elementwise("SUB", shifted, b.elementwise("LOGE", total))
    return [b.permute(y, [order.index(a) for a in range(last + 1)])]


def _softmax_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    op, (x,) = node.op, node.inputs
    assert isinstance(op, Softmax)
    axis = op.axis % len(x.shape)
    source = calling("softmax.cuh", "softmax", storage(x.dtype), flag(op.log))
    return OwnKernel("softmax", source, node.inputs, along_axis(x.shape, axis), {"axis": axis, "log": op.log})


def _call_softmax(w: CallWriter, node: Node) -> None:
    assert isinstance(node.op, Softmax)
    w.add(node, "softmax", [w.read(node.inputs[0]), node.op.axis])


def _layernorm_rule(node: Node, bounds: Bounds) -> Reason:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, LayerNorm)
    if op.statistics:
        return "AITemplate's layernorm gives neither mean nor variance"
    return floats(node) or static(x.shape[op.axis :], "the normalised dims")


def _compose_layernorm(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """Scale and shift in the normalised shape; a tensor that is normalised whole is one row."""
    assert isinstance(op, LayerNorm)
    x, axis = inputs[0], op.axis % max(1, len(inputs[0].shape))
    rows = b.reshape(x, (1, *x.shape)) if axis == 0 else x
    axis = max(1, axis)
    affine = [b.reshape(value, rows.shape[axis:]) for value in inputs[1:]]
    outputs = b.add_many(LayerNorm(axis, op.epsilon, op.gamma, op.beta, op.statistics), rows, *affine)
    return [b.reshape(y, x.shape) if rows is not x else y for y in outputs]


def _call_layernorm(w: CallWriter, node: Node) -> None:
    op = node.op
    assert isinstance(op, LayerNorm)
    affine = iter([w.read(value) for value in node.inputs[1:]])
    gamma, beta = (next(affine) if given else None for given in (op.gamma, op.beta))
    sizes = shape(w.shape(node.inputs[0].shape[op.axis :]))
    w.add(node, "layernorm", [w.read(node.inputs[0]), gamma, beta, sizes, float(op.epsilon)])


def _rms_norm_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, RmsNorm)
    axis = op.axis % max(1, len(x.shape))
    source = calling("rms_norm.cuh", "rms_norm", storage(x.dtype), flag(op.gamma), f"{float_bits(op.epsilon)}u")
    attributes = {"axis": axis, "epsilon": op.epsilon}
    return OwnKernel("rms_norm", source, node.inputs, (product(x.shape[:axis]), product(x.shape[axis:])), attributes)


def _group_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, GroupNorm)
    source = calling("group_norm.cuh", "group_norm", storage(x.dtype))
    numbers = (x.shape[0], product(x.shape[1:-1]), x.shape[-1], op.groups, float_bits(op.epsilon))
    return OwnKernel("group_norm", source, node.inputs, numbers, {"groups": op.groups, "epsilon": op.epsilon})


OPS = (
    AitOp(GroupNorm, ours=takes_floats, kernel=_group_kernel),
    AitOp(LayerNorm, rule=_layernorm_rule, compose=_compose_layernorm, call=_call_layernorm),
    AitOp(RmsNorm, ours=takes_floats, kernel=_rms_norm_kernel),
    AitOp(Softmax, _softmax_rule, _compose_softmax, _call_softmax, takes_floats, _softmax_kernel),
)
