"""Caches: kernels of ours write rows into one, and join a past and new rows that a product wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.own import OwnKernel, calling, element_of
from ortisan.codegen.ait.rules import takes_all
from ortisan.codegen.ait.strided import Strided, whole
from ortisan.codegen.ait.strided_ops import StridedCacheWrite, StridedRows
from ortisan.codegen.expressions import contiguous_strides
from ortisan.codegen.literals import flag
from ortisan.registry.dims import Dim, product, settle
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import CacheWrite, Concatenate


def _compose_cache_write(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """New rows behind all of the past are a concatenation."""
    assert isinstance(op, CacheWrite)
    if len(inputs) == 2 and op.mode == "linear" and op.length is not None:
        past, update = inputs
        rows = past.shape[op.axis]
        if settle(op.start - rows) == 0 and settle(op.length - rows - update.shape[op.axis]) == 0:
            return [b.add(Concatenate(op.axis), past, update)]
    return [b.add(op, *inputs)]


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


def _cache_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    """On whole tensors."""
    op, update = node.op, node.inputs[1]
    assert isinstance(op, CacheWrite)
    strides = contiguous_strides(update.shape)
    batch, head, row = strides[0], strides[op.axis - 1] if op.axis > 1 else 0, strides[op.axis]
    return _written(op, node, whole(1, update.shape), (0, batch, head, row))


def _strided_cache_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    op = node.op
    assert isinstance(op, StridedCacheWrite)
    return _written(op.write, node, op.update, (op.update.offset, *op.update.strides[:3]))


def _written(op: CacheWrite, node: Node, update: Strided, lies: Sequence[Dim]) -> OwnKernel:
    """`lies`: where the update begins, and the strides of its batches, of the pieces of a batch, and of rows."""
    past, _, *starts = node.inputs
    index = starts[0].dtype.cpp if starts else "int64_t"
    circular = flag(op.mode == "circular")
    source = calling("cache.cuh", "cache_write", circular, flag(bool(starts)), element_of(past.dtype), index)
    axis, rows = op.axis, (past.shape[op.axis], node.output.shape[op.axis], update.shape[op.axis])
    numbers = (past.shape[0], product(past.shape[:axis]), *rows, product(past.shape[axis + 1 :]), op.start, *lies)
    attributes: dict[str, Any] = {"axis": axis, "circular": op.mode == "circular", "length": rows[1], "start": op.start}
    return OwnKernel(
        "cache_write", source, node.inputs, numbers, {**attributes, "update": update.to_json()}, checked=True
    )


OPS = (
    AitOp(CacheWrite, compose=_compose_cache_write, ours=takes_all, kernel=_cache_kernel),
    AitOp(StridedCacheWrite, ours=takes_all, kernel=_strided_cache_kernel),
    AitOp(StridedRows, ours=takes_all, kernel=_rows_kernel),
)
