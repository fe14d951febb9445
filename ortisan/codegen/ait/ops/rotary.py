"""Rotary embeddings: the halves (or the even and odd elements) of the rotated part, turned and put back together."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.composer import Composer
from ortisan.registry.graph import Op, Value
from ortisan.registry.ops import Concatenate, Rotary, Split


def _compose_rotary(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """(a, b) -> (a cos - b sin, b cos + a sin)."""
    assert isinstance(op, Rotary)
    x, cos, sin = inputs
    size, width = op.size, x.shape[3]
    if size == 0:
        return [x]
    turned, rest = (x, None) if size == width else b.add_many(Split(3, (size, width - size)), x)
    low, high = _pairs(b, turned, op)
    cosines, sines = (_halves(b, table, size) for table in (cos, sin))
    first = b.elementwise("SUB", b.elementwise("MUL", low, cosines[0]), b.elementwise("MUL", high, sines[0]))
    second = b.elementwise("ADD", b.elementwise("MUL", high, cosines[1]), b.elementwise("MUL", low, sines[1]))
    y = _together(b, first, second, op)
    return [y if rest is None else b.add(Concatenate(3), y, rest)]


def _pairs(b: Composer, x: Value, op: Rotary) -> tuple[Value, Value]:
    half = op.size // 2
    if not op.interleaved:
        low, high = b.add_many(Split(3, (half, half)), x)
        return low, high
    columns = b.reshape(x, (*x.shape[:3], half, 2))
    low, high = b.add_many(Split(4, (1, 1)), columns)
    return b.reshape(low, (*x.shape[:3], half)), b.reshape(high, (*x.shape[:3], half))


def _halves(b: Composer, table: Value, size: int) -> tuple[Value, Value]:
    """The columns for the first and for the second elements of pairs."""
    half = size // 2
    if table.shape[-1] == half:
        return table, table
    first, second = b.add_many(Split(len(table.shape) - 1, (half, half)), table)
    return first, second


def _together(b: Composer, first: Value, second: Value, op: Rotary) -> Value:
    if not op.interleaved:
        return b.add(Concatenate(3), first, second)
    columns = [b.reshape(part, (*part.shape, 1)) for part in (first, second)]
    joined = b.add(Concatenate(4), *columns)
    return b.reshape(joined, (*joined.shape[:3], op.size))


OPS = (AitOp(Rotary, compose=_compose_rotary),)
