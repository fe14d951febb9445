"""Scalar functions over broadcast operands, and casts."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.calls import CallWriter
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.rules import FLOATS, Reason
from ortisan.codegen.ait.scalars import COMPARISONS, COMPOSITIONS, EXTRA_ARGUMENTS, FUNCTIONS
from ortisan.registry.dims import is_static, product
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import Cast, Elementwise, Expand, Gemm


def _elementwise_rule(node: Node, bounds: Bounds) -> Reason:
    op = node.op
    assert isinstance(op, Elementwise)
    name = op.func.lower()
    if op.func in COMPARISONS:
        if any(value.dtype is DType.BOOL for value in node.inputs):
            return f"AITemplate's {name} takes no bool"
        return _same_shapes(node, name)
    if op.func == "WHERE":
        return _same_shapes(node, name) or (
            "AITemplate's where takes no bool" if node.output.dtype is DType.BOOL else None
        )
    if op.func not in FUNCTIONS:
        return f"AITemplate has no {name}"
    if node.output.dtype not in FLOATS:
        return f"AITemplate computes {name} in float16, bfloat16 and float32 only, not in {node.output.dtype.value}"
    return _broadcasts(node)


def _same_shapes(node: Node, name: str) -> Reason:
    for value in node.inputs:
        if value.shape != node.output.shape and value.data is None:
            return f"AITemplate's {name} does not broadcast"
    return None


def _broadcasts(node: Node) -> Reason:
    for value in node.inputs:
        for have, need in zip(reversed(value.shape), reversed(node.output.shape), strict=False):
            if have != need and not (is_static(have) and have == 1):
                return f"the dims {have} and {need} are not known to be equal, as AITemplate needs them to be"
    return None


def _compose_elementwise(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """Functions that AITemplate lacks are composed; comparisons and choices get operands of one shape."""
    assert isinstance(op, Elementwise)
    if op.func in COMPOSITIONS:
        return [COMPOSITIONS[op.func](b, inputs, op.params)]
    if op.func in COMPARISONS or op.func == "WHERE":
        shape = op.infer([value.type for value in inputs], b.facts())[0].shape
        numbers = range(1, len(inputs))
        wide = [x if i in numbers and _is_number(x) else _widened(b, x, shape) for i, x in enumerate(inputs)]
        return [b.add(op, *wide)]
    joined = _with_bias(b, *inputs) if op.func == "ADD" else None
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


def _is_number(x: Value) -> bool:
    """Whether a value can stand as a number in the source."""
    return x.data is not None and x.data.size == 1


def _widened(b: Composer, x: Value, shape: tuple[object, ...]) -> Value:
    return x if x.shape == shape else b.add(Expand(shape), b.reshape(x, (1,)) if not x.shape else x)


def _call_elementwise(w: CallWriter, node: Node) -> None:
    op = node.op
    assert isinstance(op, Elementwise)
    if op.func in COMPARISONS:
        left, right = node.inputs
        w.add(node, COMPARISONS[op.func], [w.read(left), w.number_or_tensor(right)])
    elif op.func == "WHERE":
        condition, a, b = node.inputs
        choices = [w.number_or_tensor(a), w.number_or_tensor(b)]
        both = all(isinstance(choice, float) for choice in choices)
        w.add(node, "where", [w.read(condition), *choices, *([node.output.dtype.value] if both else [])])
    else:
        numbers = [*op.params, *EXTRA_ARGUMENTS.get(op.func, ())]
        args = [*(w.number_or_tensor(value) for value in node.inputs), *numbers]
        w.add(node, "elementwise", args, {"func_enum": {"enum": FUNCTIONS[op.func]}})


def _cast_rule(node: Node, bounds: Bounds) -> Reason:
    have, to = node.inputs[0].dtype, node.output.dtype
    if to not in FLOATS or have not in (*FLOATS, DType.BOOL):
        return f"AITemplate has no cast from {have.value} to {to.value}"
    return None


def _call_cast(w: CallWriter, node: Node) -> None:
    w.add(node, "cast", [w.read(node.inputs[0]), node.output.dtype.value])


OPS = (
    AitOp(Cast, rule=_cast_rule, call=_call_cast),
    AitOp(Elementwise, rule=_elementwise_rule, compose=_compose_elementwise, call=_call_elementwise),
)
