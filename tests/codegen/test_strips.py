"""How long elementwise chains are cut into loops over strips, and that cutting changes no result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ortisan
from ortisan.codegen.cpu.kernels.elementwise import ElementwiseContext
from tests.models.sessions import open_session
from tests.models.text import text_model
from tests.tolerances import APPROXIMATE, SAME, WIDE

SIGNATURE = "(float[A,B] x, float[B] z) => (float[A,B] y, float[A,B] w, bool[A,B] p)"
LONG = """a = Add(x, z) b = Sigmoid(a) p = Greater(b, a) w = Tanh(b) d = Where(p, w, a) e = Exp(d) f = Sqrt(e)
          g = Erf(f) y = Mul(g, x)"""


def context(signature: str, body: str) -> ElementwiseContext:
    plan = ortisan.compile(text_model(signature, body), whole_graph=True).plans[0]
    (kernel,) = plan.kernels
    assert isinstance(kernel.context, ElementwiseContext)
    return kernel.context


def functions(body: str, signature: str = SIGNATURE) -> list[list[str]]:
    return [[step.function for step in segment.steps] for segment in context(signature, body).segments]


def test_every_segment_has_one_expensive_function_and_cheap_ones_stay_behind_it() -> None:
    assert functions(LONG) == [["add", "sigmoid", "gt"], ["tanh", "where"], ["exp", "sqrt"], ["erf", "mul"]]


def test_cheap_chains_and_single_functions_are_one_loop_without_strips() -> None:
    short = "(float[N] x, float[N] z) => (float[N] y)"
    for body in ("a = Add(x, z) b = Mul(a, x) y = Sqrt(b)", "a = Add(x, z) y = Tanh(a)"):
        assert len(context(short, body).segments) == 1
        assert context(short, body).strips == ()


def test_strips_are_shared_when_their_value_is_done_and_have_the_value_s_type() -> None:
    chain = "(float[N] x) => (float[N] y)", "a = Exp(x) b = Tanh(a) c = Erf(b) d = Sigmoid(c) y = Exp(d)"
    assert len(context(*chain).strips) == 1
    assert sorted(strip.type for strip in context(SIGNATURE, LONG).strips)[:1] == ["bool"]


def test_only_the_last_segment_stores() -> None:
    segments = context(SIGNATURE, LONG).segments
    assert [len(segment.stores) for segment in segments] == [0, 0, 0, 3]


def test_a_loop_that_may_run_twice_keeps_what_it_reads() -> None:
    chain = "(float[N] x) => (float[N] y)", "a = Exp(x) b = Sin(a) c = Log(b) y = Tanh(c)"
    made = context(*chain)
    assert [segment.fast_path for segment in made.segments] == [False, True, True, False]
    for segment in made.segments:
        if segment.fast_path:
            assert {take.strip for take in segment.takes}.isdisjoint(give.strip for give in segment.gives)


def test_only_chains_of_floats_run_interleaved() -> None:
    assert [segment.interleaved for segment in context(SIGNATURE, LONG).segments] == [True] * 4
    for signature, body in (
        ("(double[N] x) => (double[N] y)", "y = Tanh(x)"),
        ("(int64[N] x) => (float[N] y)", "a = Add(x, x) b = Cast<to=1>(a) y = Tanh(b)"),
        ("(float[N] x) => (float[N] y)", "y = Add(x, x)"),
    ):
        assert [segment.interleaved for segment in context(signature, body).segments] == [False]


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray], folder: Path, threads: int = 1) -> list[np.ndarray]:
    compiled = ortisan.compile(model, whole_graph=True, name="strips")
    library = ortisan.generate(compiled, folder)
    return open_session(ortisan.convert_graph(model, compiled), library.path, threads=threads).run(None, feeds)


@pytest.mark.build
@pytest.mark.parametrize("shape", [(1, 1), (3, 31), (2, 513), (1, 4097), (40, 1030)], ids=str)
def test_results_do_not_depend_on_where_a_strip_begins(shape: tuple[int, int], tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x, z = (rng.normal(size=size).astype(np.float32) * 3 for size in (shape, shape[1:]))
    model = text_model(SIGNATURE, LONG)
    got = run(model, {"x": x, "z": z}, tmp_path, threads=2)
    want = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x, "z": z})
    np.testing.assert_allclose(got[0], want[0], APPROXIMATE, APPROXIMATE)
    np.testing.assert_allclose(got[1], want[1], SAME, SAME)
    np.testing.assert_array_equal(got[2], want[2])
    if shape[1] > 1:
        shifted = run(model, {"x": x[:, 1:].copy(), "z": z[1:].copy()}, tmp_path)
        for whole, part in zip(got, shifted, strict=True):
            np.testing.assert_array_equal(whole[:, 1:], part)


FAST_PATHS = """a = Sin(x) b = Cast<to=1>(k) c = Add(a, b) d = Log(x) e = Cos(d) y = Mul(c, e) i = Cast<to=7>(x)"""
SLOW = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, -3.0, 1e30, -2e5, 1e-40, 2.0**40], np.float32)


@pytest.mark.build
def test_arguments_off_the_fast_path_change_their_own_results_only(tmp_path: Path) -> None:
    model = text_model("(float[N] x, int64[N] k) => (float[N] y, int64[N] i)", FAST_PATHS)
    compiled = ortisan.compile(model, whole_graph=True, name="fast_paths")
    library = ortisan.generate(compiled, tmp_path)
    session = open_session(ortisan.convert_graph(model, compiled), library.path)
    rng = np.random.default_rng(0)
    for length in (0, 1, 7, 8, 9, 511, 512, 513, 1023, 1031, 9001):
        x, k = rng.uniform(0.1, 99, length).astype(np.float32), rng.integers(-99, 99, length)
        plain = session.run(None, {"x": x, "k": k})
        np.testing.assert_array_equal(plain[1], x.astype(np.int64))
        wide = x.astype(np.float64)
        np.testing.assert_allclose(plain[0], (np.sin(wide) + k) * np.cos(np.log(wide)), APPROXIMATE, WIDE)
        odd, wild = x.copy(), k.copy()
        odd[3::700] = np.resize(SLOW, odd[3::700].size)
        wild[5::900] = np.resize(np.array([2**62 + 1, -(2**63), 2**31, -(2**31) - 1]), wild[5::900].size)
        mixed = session.run(None, {"x": odd, "k": wild})
        same = (odd.view(np.uint32) == x.view(np.uint32)) & (wild == k)
        np.testing.assert_array_equal(mixed[0][same], plain[0][same])
        np.testing.assert_array_equal(mixed[1][same], plain[1][same])
        with np.errstate(all="ignore"):
            wide = odd.astype(np.float64)
            expected = (np.sin(wide) + wild.astype(np.float32)) * np.cos(np.log(wide))
        np.testing.assert_allclose(mixed[0], expected, WIDE, WIDE)
        finite = np.abs(np.nan_to_num(odd, nan=np.inf)) < 2.0**63
        np.testing.assert_array_equal(mixed[1], np.where(finite, np.where(finite, odd, 0).astype(np.int64), -(2**63)))
