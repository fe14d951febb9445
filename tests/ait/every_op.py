"""Small graphs that use every op that AITemplate has a counterpart of, with fixed dims and with dynamic ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ortisan.codegen.ait.scalars import COMPOSITIONS, FUNCTIONS
from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, symbol
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Graph, TensorType, Value
from ortisan.registry.ops import (
    Attention,
    Bmm,
    CacheWrite,
    Concatenate,
    Conv2d,
    DynamicSlice,
    Elementwise,
    Expand,
    Full,
    Gather,
    GatherNd,
    Gemm,
    GroupNorm,
    IndexSelect,
    LayerNorm,
    Pad,
    Permute,
    Pool2d,
    Reduce,
    Resize2d,
    RmsNorm,
    Rotary,
    Softmax,
    Split,
)
from ortisan.registry.scalars import SCALARS
from tests.ait.op_cases import Written
from tests.ait.own_graphs import OWN_GRAPHS
from tests.ait.shapes import BOUNDS, GROUP, HEADS, KEYS, MASK, NEEDS_P, PAST, SIZES, B, P, S, X

_RANDOM = np.random.default_rng(11)

Write = Callable[..., Value | Sequence[Value]]


def _constant(b: Builder, *shape: int) -> Value:
    return b.constant(_RANDOM.standard_normal(shape).astype(np.float32), "weight")


def _indices(b: Builder, *numbers: int) -> Value:
    return b.constant(np.array(numbers, np.int64), "indices")


def _attention_in_place(b: Builder, x: Value, past: Value) -> list[Value]:
    """The heads are columns of a product that makes queries, keys and values; another product reads the result."""
    joined = b.add(Gemm("rcr", True), x, _constant(b, 96, 32), _constant(b, 96))
    q, k, v = [
        b.permute(b.reshape(part, (*x.shape[:2], 4, 8)), (0, 2, 1, 3))
        for part in b.add_many(Split(2, (32, 32, 32)), joined)
    ]
    keys, behind = (b.add(Concatenate(2), past, part) for part in (k, v))
    y = b.permute(b.add(Attention(0.3, causal="lower_right"), q, keys, behind), (0, 2, 1, 3))
    return [b.add(Gemm("rcr"), b.reshape(y, x.shape), _constant(b, 16, 32)), keys]


GRAPHS: dict[str, tuple[Sequence[tuple[str, tuple[Dim, ...]]], Write]] = {
    "gemm_rcr": ([("float32", X)], lambda b, x: b.add(Gemm("rcr"), x, _constant(b, 24, 16))),
    "gemm_rcr_bias": (
        [("float32", X)],
        lambda b, x: b.add(Gemm("rcr", True), x, _constant(b, 24, 16), _constant(b, 24)),
    ),
    "gemm_rrr_run_time": ([("float32", X), ("float32", (16, 24))], lambda b, x, w: b.add(Gemm("rrr"), x, w)),
    "gemm_half": (
        [("float16", X)],
        lambda b, x: b.add(Gemm("rcr"), x, b.constant(np.ones((24, 16), np.float16), "weight")),
    ),
    "bmm_rrr": ([("float32", (B, 4, S, 8)), ("float32", (B, 4, 8, 24))], lambda b, x, y: b.add(Bmm("rrr"), x, y)),
    "bmm_rcr": ([("float32", (B, 4, S, 8)), ("float32", (B, 4, 24, 8))], lambda b, x, y: b.add(Bmm("rcr"), x, y)),
    "attention": ([("float32", HEADS)] * 3, lambda b, q, k, v: b.add(Attention(8**-0.5), q, k, v)),
    "attention_causal": (
        [("float32", HEADS)] * 3,
        lambda b, q, k, v: b.add(Attention(0.3, causal="upper_left"), q, k, v),
    ),
    "attention_boolean": (
        [("float32", HEADS), ("float32", KEYS), ("float32", KEYS), ("bool", MASK), ("float32", NEEDS_P)],
        lambda b, q, k, v, m, _: b.add(Attention(0.3, "boolean"), q, k, v, m),
    ),
    "attention_boolean_zero": (
        [("float32", HEADS), ("float32", GROUP), ("float32", GROUP), ("bool", MASK), ("float32", NEEDS_P)],
        lambda b, q, k, v, m, _: b.add(Attention(0.3, "boolean", empty_rows_zero=True), q, k, v, m),
    ),
    "attention_additive": (
        [("float32", HEADS), ("float32", KEYS), ("float32", KEYS), ("float32", MASK), ("float32", NEEDS_P)],
        lambda b, q, k, v, m, _: b.add(Attention(0.3, "additive", empty_rows_zero=True), q, k, v, m),
    ),
    "attention_after_a_past": (
        [("float32", HEADS), ("float32", PAST), ("float32", PAST), ("float32", HEADS)],
        lambda b, x, k, v, new: b.add(
            Attention(0.3, causal="lower_right", softcap=2.0),
            x,
            b.add(Concatenate(2), k, new),
            b.add(Concatenate(2), v, x),
        ),
    ),
    "attention_in_place": ([("float32", (B, S, 32)), ("float32", PAST)], _attention_in_place),
    "attention_large_heads": (
        [("float32", (B, 2, S, 264))] * 3,
        lambda b, q, k, v: b.add(Attention(0.05, causal="upper_left"), q, k, v),
    ),
    "attention_grouped": (
        [("float32", (B, 4, S, 8)), ("float32", (B, 2, S, 8)), ("float32", (B, 2, S, 8))],
        lambda b, q, k, v: b.add(Attention(8**-0.5), q, k, v),
    ),
    "resize_nearest": (
        [("float32", (B, 4, 5, 6))],
        lambda b, x: [
            b.add(Resize2d("nearest", (8, 15), (2.0, 3.0), "asymmetric", "floor"), x),
            b.add(Resize2d("nearest", (8, 10), (None, None), "half_pixel", "round_prefer_floor"), x),
        ],
    ),
    "layernorm": ([("float32", X)], lambda b, x: b.add(LayerNorm(2, 1e-5), x, _constant(b, 16), _constant(b, 16))),
    "group_norm": (
        [("float32", (B, 4, 4, 16))],
        lambda b, x: b.add(GroupNorm(4, 1e-5), x, _constant(b, 16), _constant(b, 16)),
    ),
    "rms_norm": ([("float32", X)], lambda b, x: b.add(RmsNorm(2, 1e-6), x, _constant(b, 16))),
    "softmax": ([("float32", X)], lambda b, x: b.add(Softmax(2), x)),
    "softmax_dynamic": ([("float32", X), ("float32", (S,))], lambda b, x, y: [b.add(Softmax(axis, log), x) for axis in (0, 1) for log in (False, True)] + [b.add(Softmax(0), y)]),
    "log_softmax": ([("float32", X)], lambda b, x: b.add(Softmax(2, log=True), x)),
    "rms_norm_parts": (
        [("float32", X), ("float16", (B, 3, S))],
        lambda b, x, h: [b.add(RmsNorm(1, 1e-5, gamma=False), x), b.add(RmsNorm(2, 1e-3, gamma=False), h), b.add(RmsNorm(0, 0.5, gamma=False), x)],
    ),
    "rotary_parts": (
        [("float32", HEADS), ("float32", (B, 1, S, 3)), ("float32", (S, 6)), ("float16", HEADS), ("float16", (1, 4)), ("float16", (4, 1, 4))],
        lambda b, x, halves, whole, h, one, heads: [
            b.add(Rotary(6), x, halves, halves), b.add(Rotary(6), x, whole, whole), b.add(Rotary(6, True), x, halves, halves), b.add(Rotary(8), h, one, heads),
        ],
    ),
    "rotary": (
        [("float32", HEADS), ("float32", (B, 1, S, 4)), ("float32", (B, 1, S, 4))],
        lambda b, x, c, s: [b.add(Rotary(8), x, c, s), b.add(Rotary(8, interleaved=True), x, c, s)],
    ),
    "cache": (
        [("float32", PAST), ("float32", HEADS)],
        lambda b, past, new: b.add(CacheWrite(2, length=P + S, start=P), past, new),
    ),
    "cache_in_place": (
        [("float32", (B, 4, 8, 8)), ("float32", (B, 4, 3, 8)), ("int64", (B,)), ("float16", (B, S, 6)), ("float16", (B, 7, 6)), ("float32", NEEDS_P)],
        lambda b, past, new, starts, h, rows, _: [
            b.add(CacheWrite(2), past, new, b.elementwise("MIN", b.elementwise("ABS", starts), b.number(5, DType.INT64))),
            b.add(CacheWrite(2, "circular"), past, new, starts), b.add(CacheWrite(2, length=P + 11, start=P), past, new), b.add(CacheWrite(1, "circular", start=P + 1), h, rows),
        ],
    ),
    "concatenate": ([("float32", X), ("float32", X)], lambda b, x, y: b.add(Concatenate(1), x, y)),
    "split": ([("float32", X)], lambda b, x: b.add_many(Split(2, (4, 12)), x)),
    "slice_first": ([("float32", X)], lambda b, x: b.add(DynamicSlice((0, 0, 2), (B, 1, 7), (1, 1, 1)), x)),
    "slice_last": ([("float32", X)], lambda b, x: b.add(DynamicSlice((0, S - 1, 0), (B, 1, 16), (1, 1, 1)), x)),
    "pad": ([("float32", (B, 16, S))], lambda b, x: b.add(Pad((0, 0, 0), (0, 0, 24 - S)), x)),
    "pad_before": ([("float32", X)], lambda b, x: b.add(Pad((0, 0, 3), (0, 0, 1)), x)),
    "expand": ([("float32", (B, 1, 16)), ("float32", X)], lambda b, x, y: [b.add(Expand(X), x), b.elementwise("EXP", y)]),
    "full": ([("float32", X)], lambda b, x: b.add(Concatenate(0), x, b.add(Full((1, S, 16), 2.5, DType.FLOAT32)))),
    "permute": ([("float32", HEADS)], lambda b, x: [b.add(Permute(o), x) for o in ((0, 2, 1, 3), (0, 1, 3, 2), (3, 1, 0, 2))]),
    "permute_three": ([("float32", X)], lambda b, x: [b.add(Permute(o), x) for o in ((0, 2, 1), (1, 0, 2), (2, 1, 0))]),
    "reshape": ([("float32", X)], lambda b, x: b.elementwise("EXP", b.reshape(x, (B * S, 4, 4)))),
    "index_select": ([("float32", (8, 16))], lambda b, x: b.add(IndexSelect(0), x, _indices(b, 3, -1, 3))),
    "index_select_run_time": (
        [("int64", (B, S)), ("int32", (S,)), ("float32", (B, 8, 6)), ("bool", (B, 8, S))],
        lambda b, i, j, x, m: [
            b.add(IndexSelect(0), _constant(b, 8, 16), i), b.add(IndexSelect(0), _constant(b, 8, 3), j),
            b.add(IndexSelect(1), x, j), b.add(IndexSelect(1), m, i),
        ],
    ),
    "index_select_1": ([("float32", (B, 8, 6))], lambda b, x: b.add(IndexSelect(1), x, _indices(b, 0, 5))),
    "index_select_2": ([("float32", (B, 8, 6))], lambda b, x: b.add(IndexSelect(2), x, _indices(b, 5, 1, 2))),
    "gather": (
        [("float32", (3, 6))],
        lambda b, x: b.add(Gather(1), x, b.constant(np.array([[0, 5], [1, -1], [2, 2]]), "indices")),
    ),
    "gather_run_time": (
        [("int64", (B, 3, S)), ("int32", (B, 2)), ("float32", (B, 8, S)), ("bool", (8, 2)), ("int64", (B, S, 2)), ("float32", (B, 8, 8, 3))],
        lambda b, i, j, x, m, c, y: [
            b.add(Gather(1), x, i), b.add(Gather(0), b.add(Concatenate(0), m, m), j), b.add(GatherNd(1), y, c), b.add(GatherNd(0), b.constant(np.arange(64).reshape(8, 8), "table"), c),
        ],
    ),
    "conv2d": (
        [("float32", (B, 8, 8, 4))],
        lambda b, x: b.add(Conv2d((2, 2), (1, 1, 1, 1), bias=True), x, _constant(b, 6, 3, 3, 4), _constant(b, 6)),
    ),
    "conv2d_odd": ([("float32", (B, S, S, 3))], lambda b, x: b.add(Conv2d(pads=(0, 1, 0, 1)), x, _constant(b, 8, 1, 3, 3))),
    "conv2d_depthwise": (
        [("float16", (B, 8, 8, 8))],
        lambda b, x: b.add(
            Conv2d((1, 1), (1, 1, 1, 1), group=8), x, b.constant(np.full((8, 3, 3, 1), 0.1, np.float16), "weight")
        ),
    ),
    "max_pool2d": ([("float32", (B, 8, 8, 4))], lambda b, x: b.add(Pool2d("max", (3, 3), (2, 2), (1, 1, 1, 1)), x)),
    "avg_pool2d": ([("float32", (B, 8, 8, 4))], lambda b, x: b.add(Pool2d("mean", (2, 2), (2, 2)), x)),
    "cast": ([("bool", X), ("float16", X)], lambda b, m, h: [b.cast(m, DType.FLOAT32), b.cast(h, DType.FLOAT32)]),
    "where": ([("bool", X), ("float32", X)], lambda b, m, x: b.elementwise("WHERE", m, x, b.number(-1.0, DType.FLOAT32))),
}  # fmt: skip
GRAPHS |= {
    f"reduce_{kind}": ([("float32", X)], lambda b, x, kind=kind: [b.add(Reduce(kind, 2, 2, True), x), b.add(Reduce(kind, 2, 2, False), x)])
    for kind in ("sum", "mean", "max", "min", "l1", "l2", "sum_square", "log_sum_exp")
}  # fmt: skip
GRAPHS |= OWN_GRAPHS
FLOAT_FUNCTIONS = sorted({*FUNCTIONS, *COMPOSITIONS})
GRAPHS |= {
    func.lower(): ([("float32", X)] * SCALARS[func].arity, lambda b, *v, func=func: b.add(Elementwise(func, (0.5, 0.25)[: SCALARS[func].params]), *v))
    for func in FLOAT_FUNCTIONS
}  # fmt: skip


DYNAMIC_ONLY = ("chain_numbers",)
"""What has no input that counts: with fixed dims it is known."""


def every_op(*, dynamic: bool) -> Iterator[Written]:
    for name, (inputs, write) in GRAPHS.items():
        if name in DYNAMIC_ONLY and not dynamic:
            continue
        builder = Builder(name)
        builder.origin = name
        types = [TensorType(DType(dtype), shape) for dtype, shape in inputs]
        values = [builder.input(f"x{index}", type_) for index, type_ in enumerate(types)]
        made = write(builder, *values)
        graph = builder.finish([made] if isinstance(made, Value) else list(made), bounds=BOUNDS)
        case = Written(name, graph, [_array(type_) for type_ in types])
        if dynamic:
            yield case
        else:
            from tests.ait.op_cases import fixed

            yield fixed(case)


def functions() -> Written:
    """All functions with float results, of the same inputs."""
    builder = Builder("functions")
    builder.origin = "functions"
    type_ = TensorType(DType.FLOAT32, X)
    inputs = [builder.input(f"x{index}", type_) for index in range(3)]
    made = [
        builder.add(Elementwise(func, (0.5, 0.25)[: SCALARS[func].params]), *inputs[: SCALARS[func].arity])
        for func in FLOAT_FUNCTIONS
    ]
    return Written("functions", builder.finish(made, bounds=BOUNDS), [_array(type_) for _ in inputs])


def sized_arrays(graph: Graph, sizes: Mapping[str, int]) -> list[np.ndarray[Any, Any]]:
    """Inputs of a graph of `every_op`, or of several joined, at other sizes."""
    found = {name: sizes[name.rpartition("_")[2]] for name in graph.symbols}
    return [_array(value.type, found) for value in graph.inputs]


def _array(type_: TensorType, sizes: Mapping[str, int] = SIZES) -> np.ndarray[Any, Any]:
    numbers = {symbol(name): size for name, size in sizes.items()}
    shape = [d if isinstance(d, int) else int(d.subs(numbers)) for d in type_.shape]
    if type_.dtype.is_integer:
        return _RANDOM.integers(-8, 8, shape).astype(type_.dtype.numpy)
    if type_.dtype is DType.BOOL:
        return _RANDOM.random(shape) < 0.6
    return _RANDOM.uniform(0.1, 1.5, shape).astype(type_.dtype.numpy)
