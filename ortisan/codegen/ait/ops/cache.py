"""Caches: AITemplate joins a past and new rows, and writes into none."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.composer import Composer
from ortisan.registry.dims import settle
from ortisan.registry.graph import Op, Value
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


OPS = (AitOp(CacheWrite, compose=_compose_cache_write),)
