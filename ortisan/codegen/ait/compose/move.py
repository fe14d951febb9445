"""Ops that move elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ortisan.codegen.ait.dialect import Composer
from ortisan.codegen.ait.dims import range_of
from ortisan.codegen.ait.rules import FLOATS
from ortisan.registry.dims import Dim, is_static, settle
from ortisan.registry.graph import Op, Value
from ortisan.registry.ops import CacheWrite, Concatenate, Expand, Full, Pad, Permute, Reshape, Split
from ortisan.registry.refusal import Refused

_MAX_CONSTANT = 2**20


def reshape(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Reshape)
    return [b.reshape(inputs[0], op.shape)]


def permute(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Permute)
    return [b.permute(inputs[0], op.order)]


def expand(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """A dim that is expanded is 1 for certain; one that might be either is refused."""
    assert isinstance(op, Expand)
    x = inputs[0] if inputs[0].shape else b.reshape(inputs[0], (1,))
    shape = op.infer([x.type], b.facts())[0].shape
    for have, need in zip(reversed(x.shape), reversed(shape), strict=False):
        if have not in (need, 1):
            raise Refused(f"the dims {have} and {need} are not known to be equal, as AITemplate needs them to be")
    return [x if shape == x.shape else b.add(Expand(shape), x)]


def concatenate(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Concatenate)
    parts = [x for x in inputs if x.shape[op.axis] != 0]
    return [parts[0] if len(parts) == 1 else b.add(op, *(parts or inputs))]


def split(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Split)
    return [inputs[0]] if len(op.sizes) == 1 else b.add_many(op, *inputs)


def full(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """A constant where the shape is known."""
    assert isinstance(op, Full)
    if all(map(is_static, op.shape)) and int(np.prod(op.shape)) <= _MAX_CONSTANT:
        return [b.constant(np.full(op.shape, op.value, op.dtype.numpy), "full")]
    if not np.isfinite(float(op.value)):
        raise Refused("AITemplate's full takes finite numbers")
    return [b.add(op)]


def pad(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """Zeros at the end of the last dim, up to a fixed width, by pad_last_dim; other numbers and places by joining."""
    assert isinstance(op, Pad)
    x, value = inputs[0], 0.0
    if op.mode != "constant":
        raise Refused(f"AITemplate has no padding of mode {op.mode}")
    if len(inputs) > 1:
        if inputs[1].data is None:
            raise Refused("AITemplate pads with a number that is known when it compiles")
        value = float(inputs[1].data.reshape(()))
    if value == 0 and _ends_last(op) and x.dtype in FLOATS and len(x.shape) <= 4:
        return [b.add(Pad(op.before, op.after), x)]
    if not all(is_static(n) and n >= 0 for n in (*op.before, *op.after)):
        return [b.add(Pad(op.before, op.after), x)] if value == 0 else _refuse_width()
    for axis, (before, after) in enumerate(zip(op.before, op.after, strict=True)):
        if before == after == 0:
            continue
        parts = [_block(b, x, axis, before, value), x, _block(b, x, axis, after, value)]
        x = b.add(Concatenate(axis), *(part for part in parts if part is not None))
    return [x]


def _ends_last(op: Pad) -> bool:
    """Whether elements are added at the end of the last dim only."""
    if any(not is_static(n) or n for n in (*op.before, *op.after[:-1])):
        return False
    return not is_static(op.after[-1]) or op.after[-1] > 0


def _refuse_width() -> Sequence[Value]:
    raise Refused("AITemplate pads to a width that is known when it compiles with zeros only")


def _block(b: Composer, x: Value, axis: int, size: Dim, value: float) -> Value | None:
    if size == 0:
        return None
    return full(b, Full((*x.shape[:axis], size, *x.shape[axis + 1 :]), value, x.dtype), ())[0]


def cache_write(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """New rows behind all of the past are a concatenation."""
    assert isinstance(op, CacheWrite)
    if len(inputs) == 2 and op.mode == "linear" and op.length is not None:
        past, update = inputs
        rows = past.shape[op.axis]
        if settle(op.start - rows) == 0 and settle(op.length - rows - update.shape[op.axis]) == 0:
            return [b.add(Concatenate(op.axis), past, update)]
    raise Refused("AITemplate writes into no cache; it joins a past and new rows")


def padded_width(b: Composer, dim: Dim) -> int:
    """A multiple of 8 that is above all that the dim can be, as pad_last_dim wants it."""
    return -(-(range_of(dim, b.bounds)[1] + 1) // 8) * 8
