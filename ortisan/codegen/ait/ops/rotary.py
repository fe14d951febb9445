"""Rotary embeddings: a kernel of ours; AITemplate would take eight for what it has."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.own import OwnKernel, calling, storage
from ortisan.codegen.ait.rules import Reason, takes_floats
from ortisan.codegen.expressions import contiguous_strides
from ortisan.codegen.literals import flag
from ortisan.registry.dims import Dim
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import Rotary


def _compose_rotary(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Rotary)
    return [inputs[0]] if op.size == 0 else [b.add(op, *inputs)]


def _rotary_rule(node: Node, bounds: Bounds) -> Reason:
    x = node.inputs[0]
    for table in node.inputs[1:]:
        for have, need in zip(reversed(table.shape[:-1]), reversed(x.shape[:3]), strict=False):
            if have not in (need, 1):
                return f"the dims {have} and {need} are not known to be equal, as GPU kernels need them to be"
    return takes_floats(node, bounds)


def _rotary_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    op, (x, cos, sin) = node.op, node.inputs
    assert isinstance(op, Rotary)
    source = calling("rotary.cuh", "rotary", flag(op.interleaved), storage(x.dtype))
    numbers = (*x.shape, op.size, cos.shape[-1], *_row_strides(cos), *_row_strides(sin))
    return OwnKernel("rotary", source, node.inputs, numbers, {"size": op.size, "interleaved": op.interleaved})


def _row_strides(table: Value) -> list[Dim]:
    """How far apart the rows for a batch, a head and a position are; 0 where the table has one for all."""
    strides = contiguous_strides(table.shape)[:-1]
    own = [0 if dim == 1 else stride for dim, stride in zip(table.shape[:-1], strides, strict=True)]
    return [*(0,) * (3 - len(own)), *own]


OPS = (AitOp(Rotary, compose=_compose_rotary, ours=_rotary_rule, kernel=_rotary_kernel),)
