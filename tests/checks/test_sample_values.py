"""Values that make sense to the graph: indices inside their tables, codes that it asks for, lengths, pixels, sound."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from ortisan.checks.samples import Sampler
from ortisan.errors import UnsupportedError
from tests.models.text import run_ort, text_model


def samples(model: onnx.ModelProto) -> list[Mapping[str, np.ndarray]]:
    cases = [next(attempts) for attempts in Sampler(model).cases()]
    return [case.feeds for case in cases if ", but " not in case.label]


def drawn(model: onnx.ModelProto, name: str = "x") -> np.ndarray:
    return np.concatenate([np.asarray(feeds[name]).ravel() for feeds in samples(model)])


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


TABLE = np.zeros((11, 3), np.float32)

INDEXED = {
    "Gather": ("int64[n] x", "y = Gather(table, x)"),
    "behind Sub": ("int64[n] x", "one = Constant<value = int64 {1}>() s = Sub(x, one) y = Gather(table, s)"),
    "behind Add and Cast": (
        "float[n] x",
        "two = Constant<value = float {2.0}>() a = Add(x, two) c = Cast<to = 7>(a) y = Gather(table, c)",
    ),
    "behind Mul": ("int64[n] x", "two = Constant<value = int64 {2}>() s = Mul(x, two) y = Gather(table, s)"),
    "behind Where": (
        "int64[n] x, bool[n] c",
        "z = Constant<value = int64 {0}>() s = Where(c, x, z) y = Gather(table, s)",
    ),
    "GatherND": ("int64[n,1] x", "y = GatherND(table, x)"),
    "GatherElements": ("int64[n,3] x", "y = GatherElements<axis = 0>(table, x)"),
    "ScatterElements": ("int64[n,3] x, float[n,3] u", "y = ScatterElements<axis = 0>(table, x, u)"),
}


@pytest.mark.parametrize("kind", INDEXED)
def test_indices_stay_in_their_tables_and_use_them(kind: str) -> None:
    inputs, body = INDEXED[kind]
    model = text_model(f"({inputs}) => (float[?,?] y)", body, constants={"table": TABLE})
    for feeds in samples(model):
        run_ort(model, feeds)
    numbers = drawn(model)
    assert len(np.unique(numbers)) >= 5
    assert (numbers == np.floor(numbers)).all()


def test_indices_into_a_computed_table_are_known_at_the_sizes_of_the_sample() -> None:
    model = text_model(
        "(float[n,4] x, int64[m] i) => (float[?,?] y)",
        "d = Concat<axis = 0>(x, x) y = Gather(d, i)",
    )
    for feeds in samples(model):
        assert feeds["i"].min() >= 0
        assert feeds["i"].max() < 2 * feeds["x"].shape[0]


def test_numbers_behind_a_clip_are_free() -> None:
    body = "lo = Constant<value = int64 {0}>() hi = Constant<value = int64 {10}>() c = Clip(x, lo, hi) y = Gather(table, c)"
    model = text_model("(int64[n] x) => (float[?,?] y)", body, constants={"table": TABLE})
    assert drawn(model).size


def test_classes_of_a_one_hot_code() -> None:
    body = "d = Constant<value = int64 {9}>() v = Constant<value = float[2] {0.0, 1.0}>() y = OneHot(x, d, v)"
    numbers = drawn(text_model("(int64[n] x) => (float[?,?] y)", body))
    assert set(numbers) == set(range(9))


def test_a_scalar_takes_the_numbers_that_it_is_compared_with() -> None:
    body = (
        "a = Constant<value = int64 {16000}>() b = Constant<value = int64 {8000}>()"
        " e = Equal(rate, a) f = Equal(rate, b) g = Or(e, f) h = Cast<to = 1>(g) y = Mul(x, h)"
    )
    model = text_model("(float[n] x, int64 rate) => (float[?] y)", body)
    assert {int(feeds["rate"]) for feeds in samples(model)} == {16000, 8000}


def test_k_is_at_most_the_number_of_elements() -> None:
    model = text_model("(float[n,6] x, int64[1] k) => (float[?,?] y, int64[?,?] i)", "y, i = TopK<axis = 0>(x, k)")
    for feeds in samples(model):
        assert 1 <= feeds["k"][0] <= feeds["x"].shape[0]


def test_lengths_are_those_of_the_rows() -> None:
    body = (
        "t = Shape<start = 1>(x) s = Squeeze(t) zero = Constant<value = int64 {0}>() one = Constant<value = int64 {1}>()"
        " r = Range(zero, s, one) u = Unsqueeze(lengths, axis) m = Less(r, u) f = Cast<to = 1>(m) y = Mul(x, f)"
    )
    model = text_model("(float[b,t] x, int64[b] lengths) => (float[?,?] y)", body, constants={"axis": ints(1)})
    for feeds in samples(model):
        assert feeds["lengths"][0] == feeds["x"].shape[1]
        assert (feeds["lengths"] >= 1).all()
        assert (feeds["lengths"] <= feeds["x"].shape[1]).all()


def test_pixels_and_sound() -> None:
    conv = {"k": np.zeros((2, 3, 3, 3), np.float32)}
    image = drawn(text_model("(float[b,3,h,w] x) => (float[?,?,?,?] y)", "y = Conv(x, k)", constants=conv))
    assert 0 <= image.min() < 0.1
    assert 0.9 < image.max() <= 1
    raw = text_model("(uint8[b,h,w,3] x) => (float[?,?,?,?] y)",
                     "f = Cast<to = 1>(x) t = Transpose<perm = [0,3,1,2]>(f) y = Conv(t, k)", constants=conv)  # fmt: skip
    assert drawn(raw).max() == 255
    wave = {"k": np.zeros((2, 1, 9), np.float32)}
    sound = text_model("(float[b,1,t] x) => (float[?,?,?] y)", "y = Conv(x, k)", constants=wave)
    first = samples(sound)[0]["x"].ravel()
    assert np.abs(first).max() < 0.5
    assert np.abs(np.diff(first)).mean() < np.abs(first).mean()


def test_an_axis_out_of_all_range_is_no_reason_to_fail() -> None:
    model = text_model(
        "(int64[n,3] x) => (float[?,?] y)", f"y = GatherElements<axis = {2**62}>(table, x)", constants={"table": TABLE}
    )  # fmt: skip
    assert drawn(model).size


def test_optional_tensors_are_tensors() -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", 4]))
    value = helper.make_value_info("x", kind)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph([helper.make_node("OptionalGetElement", ["x"], ["y"])], "g", [value], [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    for feeds in samples(model):
        assert run_ort(model, feeds)[0].shape == feeds["x"].shape


def test_what_no_array_can_be_is_refused_in_a_sentence() -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"]))
    node = helper.make_node("SequenceLength", ["x"], ["y"])
    output = helper.make_tensor_value_info("y", TensorProto.INT64, [])
    graph = helper.make_graph([node], "g", [helper.make_value_info("x", kind)], [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(UnsupportedError, match=r"no sample can be generated for input 'x' .*--inputs.*--no-verify"):
        samples(model)


@pytest.mark.parametrize(
    "body, rank",
    [("y = Relu(x)", 2), ("y = Transpose<perm = [2,0,1]>(x)", 3), ("y = Conv(x, k)", 4), ("y = Gemm(x, w)", 2)],
)
def test_ranks_that_are_not_declared_are_guessed(body: str, rank: int) -> None:
    constants = {"k": np.ones((2, 3, 3, 3), np.float32), "w": np.ones((5, 2), np.float32)}
    model = text_model("(float[] x) => (float[] y)", body, constants=constants)
    assert not model.graph.input[0].type.tensor_type.HasField("shape")
    feeds = samples(model)
    assert {sample["x"].ndim for sample in feeds} == {rank}


def test_an_initializer_that_is_an_input_too_needs_no_value() -> None:
    model = text_model("(float[n] x) => (float[?] y)", "y = Add(x, w)", constants={"w": np.ones(1, np.float32)})
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1]))
    assert {name for feeds in samples(model) for name in feeds} == {"x"}


@settings(deadline=None, max_examples=30)
@given(rows=st.integers(1, 50), shift=st.integers(-20, 20), scale=st.integers(1, 4))
def test_indices_behind_any_shift_and_scale(rows: int, shift: int, scale: int) -> None:
    body = (
        f"a = Constant<value = int64 {{{shift}}}>() m = Constant<value = int64 {{{scale}}}>()"
        " p = Mul(x, m) s = Add(p, a) y = Gather(table, s)"
    )
    model = text_model("(int64[n] x) => (float[?] y)", body, constants={"table": np.zeros(rows, np.float32)})
    for feeds in samples(model):
        reached = feeds["x"] * scale + shift
        fits = range(-shift, rows - shift)
        if any(number % scale == 0 for number in fits):
            assert reached.min() >= 0
            assert reached.max() < rows
