"""Tensors of one number, of a sequence of them, and of sizes: kernels of ours, or part of the chains that read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.rules import takes_all
from ortisan.registry.dims import is_static
from ortisan.registry.graph import Op, Value
from ortisan.registry.ops import Arange, Full, Size

_MAX_CONSTANT = 2**20


def compose_full(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """A constant where the shape is known."""
    assert isinstance(op, Full)
    if all(map(is_static, op.shape)) and int(np.prod(op.shape)) <= _MAX_CONSTANT:
        return [b.constant(np.full(op.shape, op.value, op.dtype.numpy), "full")]
    return [b.add(op)]


OPS = (
    AitOp(Arange, ours=takes_all),
    AitOp(Full, compose=compose_full, ours=takes_all),
    AitOp(Size, ours=takes_all),
)
