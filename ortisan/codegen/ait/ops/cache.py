"""Caches: a past and new rows are joined by AITemplate; rows are written into a cache by a kernel of ours."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.own import OwnKernel, calling, element_of
from ortisan.codegen.ait.rules import takes_all
from ortisan.codegen.literals import flag
from ortisan.registry.dims import product, settle
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


def _cache_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    op, (past, update, *starts) = node.op, node.inputs
    assert isinstance(op, CacheWrite)
    index = starts[0].dtype.cpp if starts else "int64_t"
    circular = flag(op.mode == "circular")
    source = calling("cache.cuh", "cache_write", circular, flag(bool(starts)), element_of(past.dtype), index)
    axis, rows = op.axis, (past.shape[op.axis], node.output.shape[op.axis], update.shape[op.axis])
    numbers = (past.shape[0], product(past.shape[:axis]), *rows, product(past.shape[axis + 1 :]), op.start)
    attributes = {"axis": axis, "circular": op.mode == "circular", "length": rows[1], "start": op.start}
    return OwnKernel("cache_write", source, node.inputs, numbers, attributes, checked=True)


OPS = (AitOp(CacheWrite, compose=_compose_cache_write, ours=takes_all, kernel=_cache_kernel),)
