"""Blockings of matrix products: the sizes a choice is made for, the cost model, the candidates, the kernels' tables."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import ortisan
from ortisan.codegen.cpu.tune.blocking import (
    DEFAULT,
    Blocking,
    BlockingUpTo,
    Problem,
    Product,
    candidates,
    distinct,
    model_blocking,
    table,
)
from ortisan.pipeline.generate import render_sources
from ortisan.registry.dims import bounds_of, product, symbol
from ortisan.registry.dtypes import DType
from tests.models.text import text_model

F32 = DType.FLOAT32
BERT = [
    (768, (768,)),
    (768, (768, 768, 768)),
    (768, (3072,)),
    (3072, (768,)),
    (256, (1024,)),
    (512, (2048,)),
    (64, (2,)),
]


@pytest.mark.parametrize("depth, columns", BERT)
@pytest.mark.parametrize("rows", [1, 8, 128, 512])
def test_the_cost_model_keeps_the_default_for_encoders(depth: int, columns: tuple[int, ...], rows: int) -> None:
    assert model_blocking(Problem(F32, depth, columns, rows)) == DEFAULT


@pytest.mark.parametrize(
    "dtype, depth, expected",
    [
        (F32, 1024, 1024),
        (F32, 1200, 600),
        (F32, 4096, 824),
        (F32, 8000, 800),
        (DType.FLOAT64, 4096, 824),
        (DType.INT8, 3000, 3072),
        (DType.FLOAT16, 5000, 768),
    ],
)
def test_the_cost_model_makes_blocks_of_equal_depth(dtype: DType, depth: int, expected: int) -> None:
    assert model_blocking(Problem(dtype, depth, (64,), 9)) == replace(DEFAULT, depth=expected)


@pytest.mark.parametrize(
    "low, high, expected",
    [
        (0, None, [(1, 3), (8, 16), (32, 64), (128, 256), (512, None)]),
        (1, 512, [(1, 3), (8, 16), (32, 64), (128, 256), (512, None)]),
        (1, 300, [(1, 3), (8, 16), (32, 64), (128, 256), (300, None)]),
        (1, 256, [(1, 3), (8, 16), (32, 64), (128, None)]),
        (1, 4, [(1, 3), (4, None)]),
        (20, 100, [(32, 64), (100, None)]),
        (600, None, [(600, None)]),
        (7, 7, [(7, None)]),
        (0, 0, [(1, None)]),
    ],
)
def test_the_rows_a_blocking_is_chosen_for(low: int, high: int | None, expected: list[tuple[int, int | None]]) -> None:
    sizes = list(Product(F32, 64, (32,), low, high).sizes())
    assert [(problem.rows, last) for problem, last in sizes] == expected


def test_equal_neighbours_are_one_row_of_the_table() -> None:
    wide = replace(DEFAULT, band=256)
    any_rows = Product(F32, 64, (32,), 0, None)
    assert table(any_rows) == (BlockingUpTo(None, DEFAULT),)
    by_rows = table(any_rows, lambda problem: wide if problem.rows in (8, 32) else DEFAULT)
    assert by_rows == (BlockingUpTo(3, DEFAULT), BlockingUpTo(64, wide), BlockingUpTo(None, DEFAULT))


@pytest.mark.parametrize("depth, columns", [*BERT, (1024, (4096,))])
def test_the_cost_model_is_the_first_candidate(depth: int, columns: tuple[int, ...]) -> None:
    problem = Problem(F32, depth, columns, 128)
    few, many = candidates(problem, "auto"), candidates(problem, "full")
    assert few[0] == many[0] == model_blocking(problem)
    assert len(few) == len(set(few)) == 11
    assert len(many) == len(set(many)) > 20 * len(few)


def test_of_equal_launches_the_first_blocking_stays() -> None:
    deep, wide = replace(DEFAULT, depth=1000), replace(DEFAULT, band=256)
    assert distinct((DEFAULT, deep, wide), ((1, 1), (1, 1), (1, 2))) == (DEFAULT, wide)


@pytest.mark.parametrize(
    "dim, bounds, expected",
    [
        (12, {}, (12, 12)),
        (product((symbol("a"), 4)), {}, (4, None)),
        (product((symbol("a"), symbol("b"))), {"a": (2, 8)}, (2, None)),
        (product((symbol("a"), symbol("b"))), {"a": (2, 8), "b": (0, 16)}, (2, 128)),
        (100 - symbol("a"), {"a": (2, 8)}, (92, 98)),
        (symbol("a") - 5, {"a": (0, 9)}, (0, 4)),
    ],
)
def test_bounds_of_dims(dim: object, bounds: dict[str, tuple[int, int]], expected: tuple[int, int | None]) -> None:
    assert bounds_of(dim, bounds) == expected


W = np.ones((40, 48), np.float32)
MODEL = text_model("(float[B,40] x) => (float[B,48] y)", "y = MatMul(x, w)", constants={"w": W})


def tables(text: str) -> list[str]:
    return re.findall(r"BlockingUpTo blockings\[\] = \{\n(.*?)\n  \};", text, re.DOTALL)


@pytest.mark.parametrize("dims, rows", [({}, (0, None)), ({"B": (1, 64)}, (1, 64)), ({"B": 6}, (6, 6))])
def test_products_are_known_by_the_bounds_of_their_rows(dims: dict[str, object], rows: tuple[int, int | None]) -> None:
    (plan,) = ortisan.compile(MODEL, dims=dims).plans  # type: ignore[arg-type]
    assert plan.products == (Product(F32, 40, (48,), max(rows[0], 1), rows[1]),)


def test_kernels_hold_the_table() -> None:
    from ortisan.codegen.cpu.functions import Functions
    from ortisan.codegen.cpu.plan import plan_graph

    compiled = ortisan.compile(MODEL, dims={"B": (1, 64)})
    text = render_sources(compiled)["kernels_0.cpp"]
    assert tables(text) == ["      {std::numeric_limits<int64_t>::max(), {768, 128, 100000, true}},"]
    other = plan_graph(
        compiled.graphs[0],
        blocking_table=lambda _: (BlockingUpTo(3, DEFAULT), BlockingUpTo(None, Blocking(8, 16, 99, False))),
    )
    (found,) = tables(Functions([other]).render()["kernels_0.cpp"])
    assert found.splitlines() == [
        "      {3, {768, 128, 100000, true}},",
        "      {std::numeric_limits<int64_t>::max(), {8, 16, 99, false}},",
    ]


def test_products_of_equal_cuts_share_a_kernel() -> None:
    square = {name: np.eye(40, dtype=np.float32) for name in "wv"}
    body = "a = MatMul(x, w) b = Relu(a) c = MatMul(b, v) y = Relu(c)"
    model = text_model("(float[B,40] x) => (float[B,40] y)", body, constants=square)
    assert len(tables(render_sources(ortisan.compile(model))["kernels_0.cpp"])) == 1


def test_a_product_of_two_inputs_is_not_tuned() -> None:
    model = text_model("(float[B,40] x, float[40,48] w) => (float[B,48] y)", "y = MatMul(x, w)")
    (plan,) = ortisan.compile(model).plans
    assert plan.products == ()
