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
    left = {node.node for node in compiled.left_out}
    assert {node.op_type for node in compiled.model.graph if node.name in left} == {"Loop"}
    converted = ir.to_proto(canonicalize(load_model(model)).model)
    for have, want in zip(run_ort(converted, feeds), run_ort(model, feeds), strict=True):
        np.testing.assert_allclose(have, want, rtol=SAME)


def shapes(text: str) -> list[str]:
    model = canonicalize(load_model(text_model("(float[2,4] x) => (float[a,4] y, float[b] z)", text))).model
    return [str(value.shape) for value in model.graph.outputs]


def test_a_carried_value_that_keeps_its_shape_has_it_after_the_loop() -> None:
    assert shapes(loop(STEADY))[0] == "[2,4]"


def test_a_carried_value_that_grows_has_no_known_size_after_the_loop() -> None:
    rows, columns = shapes(loop(GROWING))[0].strip("[]").split(",")
    assert not rows.isdecimal()
    assert columns == "4"


def test_a_dim_that_changes_with_another_carried_value_is_not_known_either() -> None:
    """The second state has the first one's rows from the second iteration on."""
    body = """h = Exp(x) turns = Constant <value_int = 4> () yes = Constant <value = bool {1}> ()
        last, twin = Loop <body = each_turn (int64 turn, bool more, float[] a, float[] b) => (bool go, float[] c, float[] d)
            { c = Concat <axis = 0> (a, a) d = Relu(a) go = Identity(more) }> (turns, yes, h, h)
        y = Neg(last) z = Neg(twin)"""
    model = canonicalize(load_model(text_model("(float[2,4] x) => (float[a,4] y, float[b,4] z)", body))).model
    assert all(not isinstance(value.shape[0], int) and value.shape[1] == 4 for value in model.graph.outputs)


def test_a_body_inside_of_a_body_forgets_what_the_outer_one_forgot() -> None:
    inner = """Loop <body = inner_turn (int64 j, bool on, float[] p) => (bool off, float[] q)
        { q = Relu(p) off = Identity(on) }> (turns, yes, state)"""
    text = loop(f"s = {inner} next = Concat <axis = 0> (s, s) each = ReduceSum <keepdims = 0> (s)")
    model = canonicalize(load_model(text_model("(float[2,4] x) => (float[a,4] y, float[b] z)", text))).model
    (relu,) = (node for node in model.graph.all_nodes() if node.op_type == "Relu")
    rows, columns = relu.outputs[0].shape
    assert not isinstance(rows, int)
    assert columns == 4


def test_a_carried_value_that_gets_another_rank_has_none() -> None:
    text = loop(
        "zero = Constant <value_ints = [0]> () next = Unsqueeze(state, zero) each = ReduceMax <keepdims = 0> (state)"
    )
    model = canonicalize(load_model(text_model("(float[2,4] x) => (float[] y, float[b] z)", text))).model
    assert model.graph.outputs[0].shape is None
    (unsqueeze,) = (node for node in model.graph.all_nodes() if node.op_type == "Unsqueeze")
    assert unsqueeze.inputs[0].shape is None
    (node,) = (node for node in model.graph if node.op_type == "Loop")
    assert node.inputs[2].producer().op_type == "Exp"


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
