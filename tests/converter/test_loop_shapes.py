"""Loops: what a body does in its first iteration is not what it does in all of them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import ortisan
from ortisan.converter.passes.canonical import canonicalize
from ortisan.converter.read.load import load_model
from tests.models.text import run_ort, text_model
from tests.tolerances import SAME

STEADY = "next = Relu(state) each = ReduceMax <keepdims = 0> (state)"
GROWING = "size = Size(state) plus = CastLike(size, state) sum = Add(state, plus) next = Concat <axis = 0> (sum, sum) each = ReduceSum <keepdims = 0> (sum)"  # fmt: skip
ENDLESS = "go = Identity(more)"
SHORT = "two = Constant <value_int = 2> () go = Less(turn, two)"


def loop(body: str, condition: str = ENDLESS, *, state: str = "float[]", inputs: str = "turns, yes, h") -> str:
    return f"""h = Exp(x) turns = Constant <value_int = 4> () yes = Constant <value = bool {{1}}> ()
        last, all = Loop <body = each_turn (int64 turn, bool more, {state} state) => (bool go, float[] next, float each)
            {{ {body} {condition} }}> ({inputs})
        y = Neg(last) z = Neg(all)"""


@pytest.mark.parametrize(
    ("condition", "inputs"),
    [
        (ENDLESS, "turns, yes, h"),
        (ENDLESS, 'turns, "", h'),
        (SHORT, "turns, yes, h"),
        (SHORT, 'turns, "", h'),
        (SHORT, '"", yes, h'),
    ],
)
@pytest.mark.parametrize("state", ["float[]", "float[q,4]"])
@pytest.mark.parametrize("body", [STEADY, GROWING])
@pytest.mark.parametrize("rows", ["n", "2"])
def test_a_loop_means_the_same(rows: str, body: str, condition: str, state: str, inputs: str) -> None:
    text = loop(body, condition, state=state, inputs=inputs)
    model = text_model(f"(float[{rows},4] x) => (float[a,4] y, float[b] z)", text)
    feeds = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}
    compiled = ortisan.compile(model, target="reference")
    assert {left.op_type for left in compiled.left_out} <= {"Loop", "Constant"}
    converted = ir.to_proto(canonicalize(load_model(model)).model)
    for have, want in zip(run_ort(converted, feeds), run_ort(model, feeds), strict=True):
        np.testing.assert_allclose(have, want, rtol=SAME)


def shapes(text: str) -> list[str]:
    model = canonicalize(load_model(text_model("(float[2,4] x) => (float[a,4] y, float[b] z)", text))).model
    return [str(value.shape) for value in model.graph.outputs]


def test_a_carried_value_that_keeps_its_shape_has_it_after_the_loop() -> None:
    assert shapes(loop(STEADY))[0] == "[2,4]"


def test_a_carried_value_that_grows_has_no_known_size_after_the_loop() -> None:
    assert not {"2", "4", "8"} & set(shapes(loop(GROWING))[0].strip("[]").split(","))


def test_how_often_a_loop_runs_is_not_known() -> None:
    assert shapes(loop(STEADY, SHORT))[1] != "[4]"


@pytest.mark.parametrize("state", ["state", "seq(float[2,4]) state"])
def test_a_loop_that_carries_a_sequence(state: str) -> None:
    body = f"""h = Exp(x) turns = Constant <value_int = 4> () yes = Constant <value = bool {{1}}> () none = SequenceEmpty()
        rows = Loop <body = each_turn (int64 turn, bool more, {state}) => (bool go, next)
            {{ next = SequenceInsert(state, h) go = Identity(more) }}> (turns, yes, none)
        all = ConcatFromSequence <axis = 0> (rows) y = Neg(all)"""
    model = text_model("(float[2,4] x) => (float[a,4] y)", body)
    feeds = {"x": np.ones((2, 4), np.float32)}
    converted = ir.to_proto(canonicalize(load_model(model)).model)
    np.testing.assert_array_equal(run_ort(converted, feeds)[0], run_ort(model, feeds)[0])
