"""How long elementwise chains are cut into loops over strips, and that cutting changes no result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ortisan
from ortisan.codegen.cpu.emit.elementwise import ElementwiseContext
from tests.models.text import text_model

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


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray], folder: Path, threads: int = 1) -> list[np.ndarray]:
    compiled = ortisan.compile(model, whole_graph=True, name="strips")
    library = ortisan.generate(compiled, folder)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(str(library.path))
    return ort.InferenceSession(ortisan.convert_graph(model, compiled).SerializeToString(), options).run(None, feeds)


@pytest.mark.build
@pytest.mark.parametrize("shape", [(1, 1), (3, 31), (2, 513), (1, 4097), (40, 1030)], ids=str)
def test_results_do_not_depend_on_where_a_strip_begins(shape: tuple[int, int], tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x, z = (rng.normal(size=size).astype(np.float32) * 3 for size in (shape, shape[1:]))
    model = text_model(SIGNATURE, LONG)
    got = run(model, {"x": x, "z": z}, tmp_path, threads=2)
    want = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x, "z": z})
    np.testing.assert_allclose(got[0], want[0], 1e-5, 1e-5)
    np.testing.assert_allclose(got[1], want[1], 1e-6, 1e-6)
    np.testing.assert_array_equal(got[2], want[2])
    if shape[1] > 1:
        shifted = run(model, {"x": x[:, 1:].copy(), "z": z[1:].copy()}, tmp_path)
        for whole, part in zip(got, shifted, strict=True):
            np.testing.assert_array_equal(whole[:, 1:], part)
