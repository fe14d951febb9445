"""Caches: a past and new rows are joined, where they are read in place by a kernel of ours; none is written into."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.own import OwnKernel, calling, element_of
from ortisan.codegen.ait.rules import takes_all
from ortisan.codegen.ait.strided_ops import StridedRows
from ortisan.registry.dims import settle
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import CacheWrite, Concatenate
from ortisan.registry.refusal import Refused


def _compose_cache_write(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """New rows behind all of the past are a concatenation."""
    assert isinstance(op, CacheWrite)
    if len(inputs) == 2 and op.mode == "linear" and op.length is not None:
        past, update = inputs
        rows = past.shape[op.axis]
        if settle(op.start - rows) == 0 and settle(op.length - rows - update.shape[op.axis]) == 0:
            return [b.add(Concatenate(op.axis), past, update)]
    raise Refused("AITemplate writes into no cache; it joins a past and new rows")


def _rows_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    op = node.op
    assert isinstance(op, StridedRows)
    past, new = op.parts
    numbers = [*past.shape[:3], new.shape[2], past.shape[3]]
    for part in op.parts:
        numbers += [part.source, part.offset, *part.strides[:3]]
    numbers.append(len(node.inputs))
    source = calling("join_rows.cuh", "join_rows", element_of(node.output.dtype))
    attributes = {"parts": [part.to_json() for part in op.parts]}
    return OwnKernel("join_rows", source, node.inputs, tuple(numbers), attributes)


OPS = (
    AitOp(CacheWrite, compose=_compose_cache_write),
    AitOp(StridedRows, ours=takes_all, kernel=_rows_kernel),
)
