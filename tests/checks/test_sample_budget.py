"""Samples stay within a budget of time and memory."""

from __future__ import annotations

import numpy as np
import pytest

from ortisan.checks.samples import Sampler, budget
from ortisan.checks.samples.dry_run import DryRun
from ortisan.converter.read.load import load_model
from ortisan.errors import UnsupportedError
from tests.models.text import text_model

NAMED = "a, b, c, d, e, f, g, h, i, j, k, l"


def shapes(sampler: Sampler) -> list[tuple[int, ...]]:
    return [next(attempts).feeds["x"].shape for attempts in sampler.cases()]


def convolutions(count: int, side: int) -> Sampler:
    body = " ".join(f"v{i + 1} = Conv<pads = [1,1,1,1]>(v{i}, k)" for i in range(count))
    signature = f"(float[b,64,{side},{side}] x) => (float[?,?,?,?] v{count})"
    constants = {"k": np.zeros((64, 64, 3, 3), np.float32)}
    return Sampler(text_model(signature, f"v0 = Relu(x) {body}", constants=constants))


def test_a_batch_that_is_the_only_free_dim_is_small_where_items_are_large() -> None:
    assert [shape[0] for shape in shapes(convolutions(1, 128))] == [1, 2, 3]


def test_a_batch_of_small_items_is_a_length() -> None:
    assert [shape[0] for shape in shapes(convolutions(1, 4))] == [1, 7, 17, 67]


def test_all_cases_together_take_a_few_seconds() -> None:
    costly = convolutions(12, 256)
    assert [shape[0] for shape in shapes(costly)] == [1]


def test_twelve_free_dims_fit_into_memory() -> None:
    model = text_model(f"(float[{NAMED}] x) => (float[{NAMED}] y)", "y = Relu(x)")
    sampler = Sampler(model)
    for attempts in sampler.cases():
        assert next(attempts).feeds["x"].nbytes <= 64 << 20
    assert next(sampler.timed()).feeds["x"].nbytes <= 64 << 20


def test_what_can_not_be_held_is_refused_in_a_sentence() -> None:
    sampler = Sampler(text_model(f"(float[b,{2**45}] x) => (float[?,?] y)", "y = Relu(x)"))
    with pytest.raises(UnsupportedError, match=r"input 'x' has the shape 1x35184372088832 at least.*--no-verify"):
        next(sampler.cases())
    with pytest.raises(UnsupportedError, match="input 'x'"):
        next(iter(sampler.timed()))


def test_large_rows_make_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "memory_limit", lambda: 40 << 20)
    sampler = Sampler(text_model("(float[b,1000000] x) => (float[?,?] y)", "y = Relu(x)"))
    assert max(shape[0] for shape in shapes(sampler)) <= 5


def test_the_forecast_counts_operations_and_what_is_held_at_once() -> None:
    constants = {"w": np.zeros((1000, 500), np.float32)}
    body = "a = MatMul(x, w) b = Relu(a) c = Relu(b) y = Relu(c)"
    dry = DryRun(load_model(text_model("(float[n,1000] x) => (float[?,?] y)", body, constants=constants)))
    found = dry.at({"x": (300, 1000)})
    assert found.clue is None
    assert found.seconds == pytest.approx(2 * 300 * 1000 * 500 / 30e9, rel=0.2)
    assert found.memory == 300 * 1000 * 4 + 2 * 300 * 500 * 4
    assert dry.at({"x": (300, 1000)}) is found


def test_a_computed_pad_is_known() -> None:
    body = "p = Concat<axis = 0>(none, wide) y = Pad(x, p)"
    constants = {"none": np.zeros(2, np.int64), "wide": np.array([0, -7], np.int64)}
    dry = DryRun(load_model(text_model("(float[b,t] x) => (float[?,?] y)", body, constants=constants)))
    clue = dry.at({"x": (1, 5)}).clue
    assert clue is not None
    assert clue.kind == "small"
    assert dry.at({"x": (1, 9)}).clue is None


def test_memory_is_a_part_of_what_is_free() -> None:
    assert 0 < budget.memory_limit() < 1 << 46
