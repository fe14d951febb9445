"""Rotary embeddings: one launch that reads the rows where a product wrote them."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.own import OwnKernel, calling, storage
from ortisan.codegen.ait.rules import takes_floats
from ortisan.codegen.ait.strided import repeated, whole
from ortisan.codegen.ait.strided_ops import StridedRotary
from ortisan.codegen.expressions import contiguous_strides
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import Rotary


def _compose_rotary(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Rotary)
    return [inputs[0] if op.size == 0 else b.add(op, *inputs)]


def _kernel(node: Node, bounds: Bounds) -> OwnKernel:
    """On whole tensors."""
    assert isinstance(node.op, Rotary)
    x, *tables = node.inputs
    cos, sin = (
        repeated(index, 0, table.shape, contiguous_strides(table.shape), (*x.shape[:3], table.shape[-1]))
        for index, table in enumerate(tables, 1)
    )
    return _turned(StridedRotary(node.op, whole(0, x.shape), cos, sin), node)


def _strided_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    assert isinstance(node.op, StridedRotary)
    return _turned(node.op, node)


def _turned(op: StridedRotary, node: Node) -> OwnKernel:
    numbers = [*op.x.shape, op.rotary.size, op.cos.shape[3]]
    for part in (op.x, op.cos, op.sin):
        numbers += [part.source, part.offset, *part.strides[:3]]
    numbers.append(len(node.inputs))
    source = calling("rotary.cuh", "rotary", storage(node.output.dtype), str(op.rotary.interleaved).lower())
    attributes = {"size": op.rotary.size, "interleaved": op.rotary.interleaved}
    parts = {"x": op.x.to_json(), "cos": op.cos.to_json(), "sin": op.sin.to_json()}
    return OwnKernel("rotary", source, node.inputs, tuple(numbers), {**attributes, **parts})


OPS = (
    AitOp(Rotary, compose=_compose_rotary, ours=takes_floats, kernel=_kernel),
    AitOp(StridedRotary, ours=takes_floats, kernel=_strided_kernel),
)
