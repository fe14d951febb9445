"""Matrix products: a constant right side as gemm_rcr, batches with one batch dim."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.calls import CallWriter
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.rules import Reason, floats, static
from ortisan.registry.dims import Dim, product
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import BlockGemm, Bmm, Gemm, Reshape
from ortisan.registry.refusal import Refused


def _gemm_rule(node: Node, bounds: Bounds) -> Reason:
    x, w = node.inputs[:2]
    if len(x.shape) < 2:
        return "AITemplate's matrix products need a matrix on the left"
    return floats(node) or static((x.shape[-1], *w.shape), "the inner size and the width of a matrix product")


def _compose_gemm(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """x w, as gemm_rcr where w is a constant; a vector is a matrix of one row."""
    assert isinstance(op, Gemm)
    x, w = inputs[:2]
    layout = op.layout
    if layout == "rrr" and w.data is not None:
        w, layout = b.permute(w, (1, 0)), "rcr"
    rows = b.reshape(x, (1, *x.shape)) if len(x.shape) == 1 else _unjoined(b, x)
    y = b.add(Gemm(layout, op.bias), rows, w, *inputs[2:])
    return [b.reshape(y, (*x.shape[:-1], y.shape[-1]))]


def _compose_block_gemm(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """A product with the weight written out."""
    assert isinstance(op, BlockGemm)
    x, q, scale, zero, *bias = inputs
    if q.data is None or scale.data is None or zero.data is None:
        raise Refused("the quantized weight is computed")
    weight = b.constant(op.weight(q.data, scale.data, zero.data), q.name)
    return _compose_gemm(b, Gemm("rcr", op.bias), (x, weight, *bias))


def _unjoined(b: Composer, x: Value) -> Value:
    """The rows before a reshape joined their dims: what follows the product then meets it without a reshape."""
    node = b.producer(x)
    if node is None or not isinstance(node.op, Reshape):
        return x
    before = node.inputs[0].shape
    for axis in range(len(before) - 1, 0, -1):
        if product(before[axis:]) == x.shape[-1]:
            return b.reshape(x, (*before[:axis], x.shape[-1]))
    return x


def _bmm_rule(node: Node, bounds: Bounds) -> Reason:
    a, b = node.inputs
    if len(a.shape) != 3 or len(b.shape) != 3 or a.shape[0] != b.shape[0]:
        return "AITemplate multiplies batches of equal size, with one batch dim"
    widths = (a.shape[-1], b.shape[-1], node.output.shape[-1])
    return floats(node) or static(widths, "the inner size and the width of a matrix product")


def _compose_bmm(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """Leading dims become one batch dim where both sides have the same; one matrix for all is a gemm."""
    assert isinstance(op, Bmm)
    x, y = inputs
    left, right = x.shape[:-2], y.shape[:-2]
    if all(dim == 1 for dim in right):
        flat = b.add(Gemm(op.layout), x, b.reshape(y, y.shape[-2:]))
        return [b.reshape(flat, _joined(left, right) + flat.shape[-2:])]
    if left != right:
        raise Refused(f"AITemplate multiplies batches of equal dims, not {list(left)} and {list(right)}")
    batch: Dim = product(left)
    flat = b.add(Bmm(op.layout), b.reshape(x, (batch, *x.shape[-2:])), b.reshape(y, (batch, *y.shape[-2:])))
    return [b.reshape(flat, (*left, *flat.shape[1:]))]


def _joined(left: tuple[Dim, ...], right: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The batch dims when those of the right side are all 1."""
    return (*right[: max(0, len(right) - len(left))], *left)


def _call_product(w: CallWriter, node: Node) -> None:
    w.add(node, node.op.name, [w.read(value) for value in node.inputs])


OPS = (
    AitOp(BlockGemm, compose=_compose_block_gemm),
    AitOp(Bmm, rule=_bmm_rule, compose=_compose_bmm, call=_call_product),
    AitOp(Gemm, rule=_gemm_rule, compose=_compose_gemm, call=_call_product),
)
