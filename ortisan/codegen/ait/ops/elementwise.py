"""Scalar functions over broadcast operands, and casts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.calls import CallWriter
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.rules import FLOATS, Reason, takes_all
from ortisan.codegen.ait.scalars import COMPOSITIONS, EXTRA_ARGUMENTS, FUNCTIONS
from ortisan.registry.dims import is_static, product
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import Cast, Elementwise, Gemm
from ortisan.registry.scalars import SCALARS


def _elementwise_rule(node: Node, bounds: Bounds) -> Reason:
    op = node.op
    assert isinstance(op, Elementwise)
    name = op.func.lower()
    if op.func not in FUNCTIONS:
        return f"AITemplate has no {name}"
    if node.output.dtype not in FLOATS:
        return f"AITemplate computes {name} in float16, bfloat16 and float32 only, not in {node.output.dtype.value}"
    return _broadcasts(node)


def _chain_rule(node: Node, bounds: Bounds) -> Reason:
    op = node.op
    assert isinstance(op, Elementwise)
    if op.func not in SCALARS:
        return f"{op.func.lower()} is a function of C++ for CPUs"
    return _broadcasts(node)


def _broadcasts(node: Node) -> Reason:
    for value in node.inputs:
        for have, need in zip(reversed(value.shape), reversed(node.output.shape), strict=False):
            if have != need and not (is_static(have) and have == 1):
                return f"the dims {have} and {need} are not known to be equal, as GPU kernels need them to be"
    return None


def _compose_elementwise(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """Functions of floats that AITemplate lacks are composed of those that it has, where that is exact enough."""
    assert isinstance(op, Elementwise)
    if op.func in COMPOSITIONS and inputs[0].dtype in FLOATS:
        return [COMPOSITIONS[op.func](b, inputs, op.params)]
    joined = _with_bias(b, *inputs) if op.func == "ADD" else None
    return [b.add(op, *inputs) if joined is None else joined]


def _with_bias(b: Composer, x: Value, y: Value) -> Value | None:
    """A product and the vector that is added to each of its rows, in one.

    Where a tensor is added, the product has a bias of zeros: AITemplate adds tensors to products that have a bias only.
    """
    for product_, added in ((x, y), (y, x)):
        node = b.producer(product_)
        if node is None or node.op != Gemm("rcr"):
            continue
        if _is_row(added, product_):
            return b.add(Gemm("rcr", bias=True), *node.inputs, b.reshape(added, added.shape[-1:]))
        if added.shape == product_.shape and added.data is None and node.inputs[1].data is not None:
            zeros = b.constant(np.zeros(product_.shape[-1:], product_.dtype.numpy), "zeros")
            return b.elementwise("ADD", b.add(Gemm("rcr", bias=True), *node.inputs, zeros), added)
    return None


def _is_row(bias: Value, x: Value) -> bool:
    """Whether a constant is one number for each column of x."""
    if bias.data is None or bias.data.size <= 1 or len(bias.shape) > len(x.shape):
        return False
    return bool(product(bias.shape) == bias.shape[-1] == x.shape[-1])


def _call_elementwise(w: CallWriter, node: Node) -> None:
    op = node.op
    assert isinstance(op, Elementwise)
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
    AitOp(Cast, rule=_cast_rule, call=_call_cast, ours=takes_all),
    AitOp(Elementwise, _elementwise_rule, _compose_elementwise, _call_elementwise, _chain_rule),
)
