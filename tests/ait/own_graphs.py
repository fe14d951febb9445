"""Small graphs of what kernels of ours compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ortisan.codegen.ait.scalars import COMPOSITIONS, FUNCTIONS
from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Value
from ortisan.registry.ops import (
    Arange,
    ArgReduce,
    CumSum,
    DynamicSlice,
    Elementwise,
    Expand,
    Full,
    Permute,
    Reduce,
    Size,
    Split,
    Trilu,
)
from ortisan.registry.scalars import SCALARS
from tests.ait.shapes import NEEDS_P, B, P, S, X

Write = Callable[..., Value | Sequence[Value]]

OURS = sorted(name for name in SCALARS if name not in {*FUNCTIONS, *COMPOSITIONS})
"""Functions that AITemplate has neither by name nor composed."""


def _all_of(b: Builder, dtype: DType, *operands: Value) -> list[Value]:
    """Every function that takes this type, where a chain of ours computes it."""
    names = [name for name, row in SCALARS.items() if dtype in row.accepts and (name in OURS or not dtype.is_float)]
    made = []
    for name in names:
        row = SCALARS[name]
        params = (1.0, 1.0) if name == "ISINF" else (0.5, 0.25) if dtype.is_float else (2.0, 1.0)
        first = (
            [b.elementwise("GT", *operands[:2]) if dtype is not DType.BOOL else operands[0]] if name == "WHERE" else []
        )
        rest = list(operands[: row.arity - len(first)])
        if name in ("POW", "SHIFT_LEFT", "SHIFT_RIGHT") and not dtype.is_float:
            rest[1] = b.elementwise("ABS", rest[1])
        made.append(b.add(Elementwise(name, params[: row.params]), *first, *rest))
    return made


def _causal(b: Builder, mask: Value, *_: Value) -> Value:
    """What exporters write for the mask of a decoder: padding and causality behind a past, as numbers to be added."""
    columns = b.reshape(b.add(Arange(0, 1, P + S, DType.INT64)), (1, 1, 1, P + S))
    rows = b.reshape(b.add(Arange(P, 1, S, DType.INT64)), (1, 1, S, 1))
    shown = b.elementwise(
        "AND", b.elementwise("LE", columns, rows), b.reshape(b.cast(mask, DType.BOOL), (B, 1, 1, P + S))
    )
    return b.elementwise("WHERE", shown, b.number(0.0, DType.FLOAT32), b.number(-np.inf, DType.FLOAT32))


_KINDS = ("sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp")
OWN_GRAPHS: dict[str, tuple[Sequence[tuple[str, tuple[Dim, ...]]], Write]] = {
    "reduce_dynamic": ([("float32", X)], lambda b, x: [b.add(Reduce(kind, *axes, kind == "max"), x) for kind in _KINDS for axes in ((1, 1), (0, 1), (1, 2))]),
    "reduce_dynamic_half": ([("float16", (B, S))], lambda b, x: [b.add(Reduce(kind, 1, 1, True), x) for kind in ("sum", "mean", "max", "l2")]),
    "reduce_int": ([("int64", X), ("int32", X)], lambda b, *v: [b.add(Reduce(kind, *axes, False), x) for x in v for kind in _KINDS if kind not in ("l2", "log_sum", "log_sum_exp") for axes in ((1, 1), (2, 2))]),
    "reduce_bool": ([("bool", X)], lambda b, x: [b.add(Reduce(kind, axis, axis, True), x) for kind in ("max", "min") for axis in (0, 1, 2)]),
    "reduce_place": (
        [("float32", X), ("int64", X), ("float16", (B, S))],
        lambda b, x, y, h: [b.add(ArgReduce(kind, axis, keep, last), v) for kind in ("max", "min") for v, axis, keep, last in ((x, 1, True, False), (x, 2, False, True), (y, 0, False, False), (y, 2, True, True), (h, 1, False, False))],
    ),
    "reduce_running": (
        [("float32", (B, S)), ("int64", X), ("int32", (S, 3, B))],
        lambda b, x, y, z: [b.add(CumSum(axis, exclusive, reverse), v) for v, axis in ((x, 1), (y, 2), (y, 1), (z, 0)) for exclusive in (False, True) for reverse in (False, True)],
    ),
    "chain_causal_mask": ([("int64", (B, P + S)), ("float32", (B, S)), ("float32", NEEDS_P)], _causal),
    "chain_int64": ([("int64", X)] * 3, lambda b, *x: _all_of(b, DType.INT64, *x)),
    "chain_int32": ([("int32", X)] * 3, lambda b, *x: _all_of(b, DType.INT32, *x)),
    "chain_bool": ([("bool", X)] * 3, lambda b, *x: _all_of(b, DType.BOOL, *x)),
    "chain_float32": ([("float32", X)] * 3, lambda b, *x: _all_of(b, DType.FLOAT32, *x)),
    "chain_float16": ([("float16", X)] * 3, lambda b, *x: _all_of(b, DType.FLOAT16, *x)),
    "chain_casts": (
        [(dtype, X) for dtype in ("float32", "float16", "int64", "int32", "bool")],
        lambda b, *x: [b.cast(v, to) for v in x for to in (DType.FLOAT32, DType.FLOAT16, DType.INT64, DType.INT32, DType.BOOL) if to is not v.dtype],
    ),
    "chain_broadcast": (
        [("int64", (B, 1, 16)), ("int64", (S, 1)), ("bool", (1,)), ("float32", (16,))],
        lambda b, x, y, m, f: [
            b.elementwise("WHERE", m, b.elementwise("ADD", x, y), b.cast(f, DType.INT64)),
            b.elementwise("MUL", b.cast(b.elementwise("SUB", x, y), DType.FLOAT32), b.number(2.5, DType.FLOAT32)),
        ],
    ),
    "chain_moves": (
        [("int64", X), ("bool", X), ("float32", X)],
        lambda b, x, m, f: [
            b.add(Permute((2, 0, 1)), x), b.add(Expand((2, B, S, 16)), x), *b.add_many(Split(2, (5, 11)), x),
            b.add(DynamicSlice((0, S - 1, 15), (B, 1, 8), (1, 1, -2)), x), b.add(Permute((1, 0, 2)), m),
            b.add(DynamicSlice((0, S - 1, 0), (B, S, 16), (1, -1, 1)), f), b.add(DynamicSlice((0, 0, 0), (B, S, 8), (1, 1, 2)), f),
            b.elementwise("ADD", b.add(Permute((1, 0, 2)), x), b.add(Expand((S, B, 16)), b.add(DynamicSlice((0, 0, 0), (1, 1, 16), (1, 1, 1)), x))),
        ],
    ),
    "chain_numbers": (
        [("float32", (B, S)), ("float32", NEEDS_P)],
        lambda b, x, _: [
            b.add(Arange(P, 3, S, DType.INT64)), b.add(Arange(0, 1, B * S, DType.FLOAT32)), b.add(Size((B, S, P + S, 7))),
            b.add(Full((B, S), True, DType.BOOL)), b.add(Full((S, 2), -np.inf, DType.FLOAT32)), b.add(Full((S,), -(2**62), DType.INT64)),
        ],
    ),
    "chain_between": (
        [("float32", X)],
        lambda b, x: b.elementwise("EXP", b.elementwise("WHERE", b.elementwise("GT", b.elementwise("TANH", x), b.number(0.5, DType.FLOAT32)), x, b.elementwise("NEG", x))),
    ),
    "trilu": ([("float32", X), ("int64", (3, S, S))], lambda b, x, y: [b.add(Trilu(True, 1), x), b.add(Trilu(False, -1), y), b.add(Trilu(False, 2), x)]),
}  # fmt: skip
