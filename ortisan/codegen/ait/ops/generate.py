"""Tensors of one number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.calls import CallWriter
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.rules import Reason
from ortisan.registry.dims import is_static
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import Full
from ortisan.registry.refusal import Refused

_MAX_CONSTANT = 2**20


def _full_rule(node: Node, bounds: Bounds) -> Reason:
    return "AITemplate's full makes no bool" if node.output.dtype is DType.BOOL else None


def compose_full(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """A constant where the shape is known."""
    assert isinstance(op, Full)
    if all(map(is_static, op.shape)) and int(np.prod(op.shape)) <= _MAX_CONSTANT:
        return [b.constant(np.full(op.shape, op.value, op.dtype.numpy), "full")]
    if not np.isfinite(float(op.value)):
        raise Refused("AITemplate's full takes finite numbers")
    return [b.add(op)]


def _call_full(w: CallWriter, node: Node) -> None:
    assert isinstance(node.op, Full)
    w.add(node, "full", [w.target(node), float(node.op.value), node.op.dtype.value])


OPS = (AitOp(Full, rule=_full_rule, compose=compose_full, call=_call_full),)
