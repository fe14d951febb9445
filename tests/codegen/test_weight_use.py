"""The hints about weights that go into the generated tables: who reads them with few rows, and which are tables."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ortisan
from ortisan.codegen.cpu.plan import GraphPlan
from ortisan.codegen.cpu.weight_use import is_thin, looked_up
from ortisan.models import BertSize, bert
from ortisan.pipeline.generate import render_sources
from tests.models.text import text_model


def layers(signature: str, body: str, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    return text_model(signature, body, constants={n: rng.normal(size=s).astype("f4") for n, s in shapes.items()})


def plan(model: onnx.ModelProto, **options: object) -> GraphPlan:
    return ortisan.compile(model, whole_graph=True, **options).plans[0]  # type: ignore[arg-type]


ROWS = layers("(float[batch,seq,8] x) => (float[batch,seq,8] y)", "y = MatMul(x, w)", w=(8, 8))


@pytest.mark.parametrize(
    "dims, thin",
    [
        ({}, False),
        ({"batch": 1}, False),
        ({"batch": 1, "seq": 1}, True),
        ({"batch": (1, 8), "seq": 1}, True),
        ({"batch": (1, 9), "seq": 1}, False),
        ({"batch": (1, 4), "seq": (1, 2)}, True),
        ({"batch": (1, 4), "seq": (1, 3)}, False),
    ],
)
def test_rows_are_counted_at_their_upper_bounds(dims: dict[str, int | tuple[int, int]], thin: bool) -> None:
    assert is_thin(plan(ROWS, dims=dims)) is thin


@pytest.mark.parametrize("few, many, thin", [(32, 16, True), (16, 32, False)])
def test_most_bytes_decide(few: int, many: int, thin: bool) -> None:
    model = layers(
        f"(float[1,{few}] x, float[100,{many}] z) => (float[1,16] y, float[100,16] u)",
        "y = MatMul(x, w) u = MatMul(z, v)",
        w=(few, 16),
        v=(many, 16),
    )
    assert is_thin(plan(model)) is thin


def test_a_weight_of_both_kinds_of_products_is_not_thin() -> None:
    model = layers(
        "(float[1,16] x, float[100,16] z) => (float[1,16] y, float[100,16] u)",
        "y = MatMul(x, w) u = MatMul(z, w)",
        w=(16, 16),
    )
    assert not is_thin(plan(model))


def test_without_packed_weights_nothing_is_thin() -> None:
    assert not is_thin(plan(layers("(float[1,4] x) => (float[1,4] y)", "y = Add(x, w)", w=(1, 4))))


def test_tables_are_those_that_are_only_looked_up() -> None:
    model = layers(
        "(int64[n] i, float[9,4] x) => (float[n,4] y, float[n,4] z, float[9,4] u)",
        "y = Gather(t, i) z = Gather(s, i) u = Add(x, s)",
        t=(9, 4),
        s=(9, 4),
    )
    found = plan(model)
    names = found.weight_names()
    assert {names[index] for index in looked_up(found)} == {"t"}


@pytest.mark.parametrize("dims, thin", [({}, "false"), ({"batch": 1, "sequence": 1}, "true")])
def test_the_hints_are_in_the_source(dims: dict[str, int], thin: str) -> None:
    size = BertSize(layers=1, hidden=32, heads=2, intermediate=48, vocabulary=20, positions=16)
    source = render_sources(ortisan.compile(bert(size), dims=dims))["graphs_0.cpp"]
    assert f"scratch_bytes, run, {thin}}};\n" in source
    table = f'{{"embeddings.word_embeddings.weight", 1, {4 * 20 * 32}, true}},'
    matrix = f'{{"encoder.layer.0.intermediate.dense.weight/panels_rcr", 1, {4 * 32 * 48}, false}},'
    assert table in source
    assert matrix in source
