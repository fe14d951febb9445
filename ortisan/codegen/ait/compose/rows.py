"""Elementwise functions, reductions and normalisations."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.codegen.ait.compose.images import folded
from ortisan.codegen.ait.dialect import Composer
from ortisan.codegen.ait.scalars import COMPARISONS, COMPOSITIONS
from ortisan.registry.dims import product
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Op, Value
from ortisan.registry.ops import Cast, Elementwise, Expand, Gemm, LayerNorm, Reduce, RmsNorm, Softmax
from ortisan.registry.refusal import Refused


def elementwise(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """Functions that AITemplate lacks are composed; comparisons and choices get operands of one shape."""
    assert isinstance(op, Elementwise)
    if op.func in COMPOSITIONS:
        return [COMPOSITIONS[op.func](b, inputs, op.params)]
    if op.func in COMPARISONS or op.func == "WHERE":
        shape = op.infer([value.type for value in inputs], b.facts())[0].shape
        numbers = range(1, len(inputs))
        wide = [x if i in numbers and is_number(x) else _widened(b, x, shape) for i, x in enumerate(inputs)]
        return [b.add(op, *wide)]
    joined = _with_bias(b, *inputs) if op.func == "ADD" else None
    if joined is None and op.func in ("ADD", "MUL"):
        joined = folded(b, op.func, *inputs)
    return [b.add(op, *inputs) if joined is None else joined]


def _with_bias(b: Composer, x: Value, y: Value) -> Value | None:
    """A product and the vector that is added to each of its rows, in one."""
    for product_, bias in ((x, y), (y, x)):
        node = b.producer(product_)
        if node is not None and node.op == Gemm("rcr") and _is_row(bias, product_):
            return b.add(Gemm("rcr", bias=True), *node.inputs, b.reshape(bias, bias.shape[-1:]))
    return None


def _is_row(bias: Value, x: Value) -> bool:
    """Whether a constant is one number for each column of x."""
    if bias.data is None or bias.data.size <= 1 or len(bias.shape) > len(x.shape):
        return False
    return bool(product(bias.shape) == bias.shape[-1] == x.shape[-1])


def is_number(x: Value) -> bool:
    """Whether a value can stand as a number in the source."""
    return x.data is not None and x.data.size == 1


def _widened(b: Composer, x: Value, shape: tuple[object, ...]) -> Value:
    return x if x.shape == shape else b.add(Expand(shape), b.reshape(x, (1,)) if not x.shape else x)


def reduce(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
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


def softmax(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """log_softmax is x - max - log(sum(exp(x - max))): the logarithm of a softmax underflows."""
    assert isinstance(op, Softmax)
    (x,) = inputs
    if len(x.shape) == 1:
        return [b.reshape(softmax(b, Softmax(1, op.log), (b.reshape(x, (1, *x.shape)),))[0], x.shape)]
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


def layernorm(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """Scale and shift in the normalised shape; a tensor that is normalised whole is one row."""
    assert isinstance(op, LayerNorm)
    x, axis = inputs[0], op.axis % max(1, len(inputs[0].shape))
    rows = b.reshape(x, (1, *x.shape)) if axis == 0 else x
    axis = max(1, axis)
    affine = [b.reshape(value, rows.shape[axis:]) for value in inputs[1:]]
    outputs = b.add_many(LayerNorm(axis, op.epsilon, op.gamma, op.beta, op.statistics), rows, *affine)
    return [b.reshape(y, x.shape) if rows is not x else y for y in outputs]


def rms_norm(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """x / sqrt(mean(x x) + eps) gamma, in float32 up to the scale."""
    assert isinstance(op, RmsNorm)
    x, axis = inputs[0], op.axis % max(1, len(inputs[0].shape))
    wide = x if x.dtype is DType.FLOAT32 else b.add(Cast(DType.FLOAT32), x)
    rows = b.reshape(wide, (*(x.shape[:axis] or (1,)), product(x.shape[axis:])))
    mean = row_reduce(b, "mean", b.elementwise("MUL", rows, rows))
    root = b.elementwise("SQRT", b.elementwise("ADD", mean, b.number(op.epsilon, DType.FLOAT32)))
    y = b.reshape(b.cast(b.elementwise("DIV", rows, root), x.dtype), x.shape)
    return [b.elementwise("MUL", y, b.reshape(inputs[1], x.shape[axis:])) if op.gamma else y]
