"""Kernels of our own, executed from their PTX, against the ops' numpy references: bounds and races are checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, symbol
from ortisan.registry.dtypes import DType
from ortisan.registry.evaluate import evaluate_graph
from ortisan.registry.graph import Graph, TensorType, Value
from ortisan.registry.ops import (
    ArgReduce,
    Attention,
    CacheWrite,
    Concatenate,
    CumSum,
    Gather,
    GatherNd,
    IndexSelect,
    Reduce,
    Softmax,
    Split,
)
from tests.ait.every_op import SIZES, every_op, sized_arrays
from tests.ait.interpreted import difference
from tests.gpu.own_kernels import OwnKernels
from tests.tolerances import APPROXIMATE, HALF, HALF_SOFTMAX

pytestmark = [pytest.mark.nvcc, pytest.mark.build]

STARTS = ("attention", "cache_in_place", "chain", "gather_run_time", "group_norm", "index_select_run_time", "reduce_")
STARTS += ("rms_norm", "rotary", "softmax_dynamic", "trilu")
OTHER_SIZES = ({"b": 1, "s": 1, "p": 0}, {"b": 3, "s": 7, "p": 1}, {"b": 4, "s": 8, "p": 8})
N, M = symbol("n"), symbol("m")


def written(write: Callable[..., Sequence[Value]], *inputs: tuple[str, tuple[Dim, ...]]) -> Graph:
    b = Builder("written")
    b.origin = "node"
    made = write(b, *(b.input(f"x{i}", TensorType(DType(dtype), shape)) for i, (dtype, shape) in enumerate(inputs)))
    return b.finish(list(made), bounds={"n": (0, 2000), "m": (0, 2000)})


def _select(b: Builder, ids: Value, places: Value) -> Sequence[Value]:
    table = b.constant(np.arange(1, 51, dtype=np.float32).reshape(10, 5), "table")
    pairs = b.reshape(ids, (N, 1, 1))
    return [
        b.add(IndexSelect(0), table, ids),
        b.add(Gather(0), b.constant(np.arange(1, 8, dtype=np.int64), "list"), ids),
        b.add(GatherNd(0), table, pairs),
        b.add(CacheWrite(1), b.constant(np.zeros((2, 4, 3), np.float32), "past"), b.constant(np.ones((2, 2, 3), np.float32), "new"), places),
    ]  # fmt: skip


_WRAPPING = (
    "ADD",
    "SUB",
    "MUL",
    "MAX",
    "MIN",
    "EQ",
    "GT",
    "GE",
    "LT",
    "LE",
    "BITWISE_AND",
    "BITWISE_OR",
    "BITWISE_XOR",
)
_SPECIAL = ("ISNAN", "ABS", "NEG", "ROUND", "FLOOR", "CEIL", "RELU", "SIGN", "ERF", "SINH", "ATAN", "ASINH")
_COMPARED = ("MAX", "MIN", "EQ", "GT", "GE", "LT", "LE")
ROWS: tuple[Dim, ...] = (M, N)


def _attention(b: Builder, x: Value, past: Value, mask: Value) -> Sequence[Value]:
    """[2,N] new rows behind [2,M] of a past: grouped heads that lie in columns, with and without a mask."""
    q, k, v = [
        b.permute(b.reshape(part, (2, N, part.shape[2] // 8, 8)), (0, 2, 1, 3))
        for part in b.add_many(Split(2, (32, 16, 16)), x)
    ]
    keys, both = (b.add(Concatenate(2), past, part) for part in (k, v))
    ops = Attention(0.3, causal="lower_right"), Attention(0.3, "boolean", empty_rows_zero=True, softcap=1.5)
    rows = [b.add(op, q, keys, both, *([mask] if op.mask != "none" else [])) for op in ops]
    return [b.permute(rows[0], (0, 2, 1, 3)), rows[1], keys]


OWN = {
    "selected": written(_select, ("int64", (N,)), ("int64", (2,))),
    "wrapping": written(
        lambda b, x, y: [*(b.elementwise(name, x, y) for name in _WRAPPING), b.elementwise("NEG", x), b.elementwise("BITWISE_NOT", x)],
        ("int64", (N,)), ("int64", (N,)),
    ),
    "special": written(
        lambda b, x, y: [
            *(b.elementwise("WHERE", b.elementwise("ISNAN", y), b.elementwise(name, x), x) if name != "ISNAN" else b.elementwise(name, x) for name in _SPECIAL),
            *(b.elementwise("WHERE", b.elementwise("EQ", x, x), made, made) for made in (b.elementwise(name, x, y) for name in _COMPARED)),
            *(b.elementwise("ISINF", x, params=params) for params in ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0))),
        ],
        ("float32", (N,)), ("float32", (N,)),
    ),
    "rows": written(
        lambda b, x: [
            b.add(Softmax(1), x), b.add(Softmax(1, log=True), x), b.add(Softmax(0), x), *(b.add(Reduce(kind, 1, 1, True), x) for kind in ("sum", "max", "min", "mean", "log_sum_exp")),
            b.add(Reduce("sum", 0, 1, True), x), b.add(CumSum(1), x), b.add(CumSum(0, False, True), x), b.add(ArgReduce("max", 1, False), x), b.add(ArgReduce("min", 1, True, True), x),
        ],
        ("float32", ROWS),
    ),
    "attention_sizes": written(_attention, ("float32", (2, N, 64)), ("float32", (2, 2, M, 8)), ("bool", (N, M + N))),
    "attention_sizes_half": written(_attention, ("float16", (2, N, 64)), ("float16", (2, 2, M, 8)), ("bool", (N, M + N))),
}  # fmt: skip
CASES = {case.name: case for case in every_op(dynamic=True) if case.name.startswith(STARTS)}


@pytest.fixture(scope="module")
def kernels() -> OwnKernels:
    return OwnKernels({**{name: case.graph for name, case in CASES.items()}, **OWN})


@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_what_the_op_means(kernels: OwnKernels, name: str) -> None:
    graph = CASES[name].graph
    half = any(value.dtype.value == "float16" for value in graph.values())
    for sizes in (SIZES, *OTHER_SIZES):
        inputs = sized_arrays(graph, sizes)
        made, fault = kernels.run(name, inputs)
        assert fault == 0
        for number, (have, want) in enumerate(zip(made, evaluate_graph(graph, inputs), strict=True)):
            assert difference(have, want, f"output {number} at {sizes}") <= (HALF if half else APPROXIMATE)


def check(kernels: OwnKernels, name: str, *inputs: np.ndarray[Any, Any], limit: float = APPROXIMATE) -> None:
    made, fault = kernels.run(name, inputs)
    assert fault == 0
    for number, (have, want) in enumerate(zip(made, evaluate_graph(OWN[name], list(inputs)), strict=True)):
        assert difference(have, want, f"output {number}") <= limit


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("new, past", [(1, 0), (1, 75), (5, 3), (17, 0), (70, 61)])
def test_attention_chooses_its_form_by_the_sizes(kernels: OwnKernels, dtype: str, new: int, past: int) -> None:
    """Few queries and many; the second head sees nothing in some rows."""
    random = np.random.default_rng(new + past)
    x, old = (random.standard_normal(shape).astype(dtype) for shape in ((2, new, 64), (2, 2, past, 8)))
    mask = random.random((new, past + new)) < 0.7
    mask[new // 2] = False
    half = dtype == "float16"
    check(
        kernels,
        "attention_sizes_half" if half else "attention_sizes",
        x,
        old,
        mask,
        limit=HALF_SOFTMAX if half else APPROXIMATE,
    )


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 1000), (2, 257), (5, 31), (300, 2)], ids=str)
def test_rows_of_any_length(kernels: OwnKernels, shape: tuple[int, int]) -> None:
    check(kernels, "rows", np.random.default_rng(3).standard_normal(shape).astype(np.float32))


def test_rows_with_infinities_and_what_is_no_number(kernels: OwnKernels) -> None:
    x = np.random.default_rng(4).standard_normal((6, 70)).astype(np.float32)
    x[1, 33], x[2, 7], x[3, 64], x[4] = -np.inf, np.nan, np.inf, -np.inf
    x[5, ::9] = 5.0  # equals: the first or the last of them is the largest
    check(kernels, "rows", x)


def test_the_ends_of_integers_wrap(kernels: OwnKernels) -> None:
    ends = np.array([-(2**63), -(2**63) + 1, -1, 0, 1, 2**62, 2**63 - 1])
    pairs = np.array(np.meshgrid(ends, ends)).reshape(2, -1)
    check(kernels, "wrapping", *pairs)


def test_floats_that_are_no_numbers(kernels: OwnKernels) -> None:
    ends = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, 3.4e38, -3.4e38, 0.5, 1.5, -2.5], np.float32)
    pairs = np.array(np.meshgrid(ends, ends)).reshape(2, -1)
    check(kernels, "special", *pairs)


def test_indices_count_from_both_ends(kernels: OwnKernels) -> None:
    check(kernels, "selected", np.array([0, 6, -1, -7]), np.array([0, 2]))
    check(kernels, "selected", np.array([], np.int64), np.array([1, 1]))


@pytest.mark.parametrize("ids, places, output", [([0, 10], [0, 0], 0), ([-11], [0, 0], 0), ([9], [0, 0], 1), ([2**62], [0, 0], 2), ([1], [3, 0], 3), ([1], [0, -1], 3)])  # fmt: skip
def test_an_index_out_of_range_reads_nothing_and_is_reported(
    kernels: OwnKernels, ids: list[int], places: list[int], output: int
) -> None:
    """What it stands for is 0, and the rest is as it should be; the emulator would tell of a read outside of the table."""
    made, fault = kernels.run("selected", [np.array(ids), np.array(places)])
    assert fault != 0
    table = np.concatenate([np.arange(1, 51, dtype=np.float32).reshape(10, 5), np.zeros((1, 5), np.float32)])
    inside = [index if -10 <= index < 10 else 10 for index in ids]
    np.testing.assert_array_equal(made[0], table[[index % 10 if index != 10 else 10 for index in inside]])
    if output == 3:
        past = np.zeros((2, 4, 3), np.float32)
        for batch, place in enumerate(places):
            for row in (place, place + 1):
                if 0 <= row < 4:
                    past[batch, row] = 1
        np.testing.assert_array_equal(made[3], past)
