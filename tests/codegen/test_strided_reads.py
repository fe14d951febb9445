"""Numbers of loops and copies that read through strides, against the numpy reference and ONNX Runtime.

All cases are one model and one library, run with several sizes: dims of 1, primes, and none at all.
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.compose
import pytest

import ortisan
from tests.models.text import random_feeds, run_ort, text_model
from tests.tolerances import APPROXIMATE, CLOSE_BY_DTYPE

pytestmark = pytest.mark.build


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers)


def weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


HEADS = "h = Reshape(x, s) q = Transpose<perm=[0,2,1,3]>(h)"
HALF = {"z": ints(0), "m": ints(32), "e": ints(64), "f": ints(3)}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gated": ("(float[B,S,34] x) => (float[B,S,17] y)", "a, b = Split<axis = 2>(x, s) c = Relu(a) y = Mul(c, b)", {"s": ints(17, 17)}),
    "gated_gelu": ("(float[B,S,262] x) => (float[B,S,131] y)", "a, b = Split<axis = 2>(x, s) c = Gelu(a) y = Mul(c, b)", {"s": ints(131, 131)}),
    "long_lines": ("(float[B,S,2100] x) => (float[B,S,1050] y)", "a, b = Split<axis = 2>(x, s) c = Tanh(a) d = Exp(c) y = Mul(d, b)", {"s": ints(1050, 1050)}),
    "uneven": ("(float[B,S,17] x) => (float[B,S,5] y, float[B,S,1] z, float[B,S,11] w)",
               "a, b, c = Split<axis = 2>(x, s) y = Neg(a) z = Abs(b) w = Relu(c)", {"s": ints(5, 1, 11)}),
    "heads": ("(float[B,S,21] x, float[3,1,7] b) => (float[B,3,S,7] y)", f"{HEADS} y = Add(q, b)", {"s": ints(0, 0, 3, 7)}),
    "cut_and_joined": ("(float[B,S,128] x, float[S,64] cos, float[S,64] sin) => (float[B,2,S,64] y)",
               f"""{HEADS} c = Slice(q, z, m, f) d = Slice(q, m, e, f) n = Abs(d) r = Concat<axis = 3>(n, c)
               u = Mul(q, cos) v = Mul(r, sin) y = Add(u, v)""", HALF | {"s": ints(0, 0, 2, 64)}),
    "selected_twice": ("(float[B,S,3,9] x) => (float[B,S,9] y)", "a = Gather<axis = 2>(x, i) b = Gather<axis = 2>(x, j) y = Sub(a, b)",
                       {"i": np.array(0), "j": np.array(-1)}),
    "reversed_rows": ("(float[B,S,5,8] x) => (float[B,S,5,8] y)", "a = Slice(x, b, c, d, e) y = Sub(x, a)",
                      {"b": ints(-1), "c": ints(-9), "d": ints(2), "e": ints(-1)}),
    "every_other_row": ("(float[B,S,5,8] x) => (float[B,S,3,8] y)", "a = Slice(x, b, c, d, e) y = Exp(a)",
                        {"b": ints(0), "c": ints(9), "d": ints(2), "e": ints(2)}),
    "whole_and_permuted": ("(float[4,4,64] x) => (float[4,4,64] y)", "r = Relu(x) t = Transpose<perm=[1,0,2]>(r) y = Sub(r, t)", {}),
    "first_row_and_element": ("(float[4,8] x) => (float[4,8] y)", """r = Relu(x) f = Slice(r, a, b) e = Slice(f, a, b, b)
        c = Sub(r, f) y = Sub(c, e)""", {"a": ints(0), "b": ints(1)}),
    "input_and_its_view": ("(float[B,3,3,8] x) => (float[B,3,3,8] y)", "t = Transpose<perm=[0,2,1,3]>(x) y = Sub(x, t)", {}),
    "row_and_column": ("(float[7] x) => (float[7,7] y)", "c = Reshape(x, s) y = Sub(x, c)", {"s": ints(7, 1)}),
    "row_and_column_of_a_product": ("(float[7,5] x, float[7] v) => (float[7,7] y)", "a = MatMul(x, w) b = Add(a, v) c = Reshape(v, s) y = Sub(b, c)",
                                    {"w": weight(5, 7), "s": ints(7, 1)}),
    "expanded": ("(float[B,1,8] x, float[B,S,8] v) => (float[B,S,8] y)", "s = Shape(v) e = Expand(x, s) y = Mul(e, v)", {}),
    "column_repeated": ("(float[B,S,8] x) => (float[B,S,8] y)", "c = Slice(x, a, b, d) y = Mul(x, c)", {"a": ints(2), "b": ints(3), "d": ints(2)}),
    "run_time_broadcast": ("(float[B,S,8] x, float[P,S,4] v) => (float[Q,S,4] y)", "c = Slice(x, a, b, d) y = Add(c, v)",
                           {"a": ints(3), "b": ints(7), "d": ints(2)}),
    "dim_from_run_time": ("(float[B,S,8] x) => (float[B,T,8] y)", "c = Slice(x, a, b, d) y = Relu(c)", {"a": ints(1), "b": ints(99), "d": ints(1)}),
    "part_of_a_table": ("(float[B,S,8] x) => (float[B,S,8] y)", "h = Shape<start = 1, end = 2>(x) p = Slice(t, a, h, d) y = Add(x, p)",
                        {"t": weight(1, 900, 8), "a": ints(0), "d": ints(1)}),
    "scalar_of_a_vector": ("(float[B,S] x, float[3] v) => (float[B,S] y)", "a = Gather(v, i) y = Mul(x, a)", {"i": np.array(1)}),
    "product_then_view": ("(float[B,S,8] x) => (float[B,S,6] y)", "m = MatMul(x, w) a, b = Split<axis = 2>(m, s) c = Add(a, v) y = Mul(c, b)",
                          {"w": weight(8, 12), "s": ints(6, 6), "v": weight(6)}),
    "product_then_permute": ("(float[4,4,8] x) => (float[4,4,8] y)", "m = MatMul(x, w) t = Transpose<perm=[1,0,2]>(m) y = Relu(t)", {"w": weight(8, 8)}),
    "residual_from_a_view": ("(float[B,S,8] x) => (float[B,S,4] y)", "r = Slice(x, a, b, d) m = MatMul(x, w) y = Add(m, r)",
                             {"w": weight(8, 4), "a": ints(1), "b": ints(5), "d": ints(2)}),
    "residual_that_a_view_still_reads": ("(float[B,8] x) => (float[B,4] y)", """r = Softmax(x) a = Softmax(r) m = MatMul(a, w) n = Add(m, r)
        o = Softmax(n) c = Slice(r, b, d, e) g = Slice(o, b, d, e) y = Mul(c, g)""",
        {"w": weight(8, 8), "b": ints(3), "d": ints(7), "e": ints(1)}),
    "copies_of_views": ("(float[B,S,2,8] x) => (float[B,2,S,3] y, float[B,4,S,8] z, float[S,B,2,8] w)",
                        """t = Transpose<perm=[0,2,1,3]>(x) y = Slice(t, a, b, d) z = Concat<axis = 1>(t, t) w = Transpose<perm=[2,0,1,3]>(t)""",
                        {"a": ints(4), "b": ints(7), "d": ints(3)}),
    "swapped_halves": ("(float[B,S,9] x) => (float[B,S,9] y)", "a, b = Split<axis = 2>(x, s) y = Concat<axis = 2>(b, a)", {"s": ints(4, 5)}),
    "split_of_a_view": ("(float[B,S,2,8] x) => (float[B,2,S,3] y, float[B,2,S,5] z)", "t = Transpose<perm=[0,2,1,3]>(x) y, z = Split<axis = 3>(t, s)", {"s": ints(3, 5)}),
    "expanded_view": ("(float[B,S,2,8] x) => (float[3,B,2,S,8] y)", "t = Transpose<perm=[0,2,1,3]>(x) h = Shape(t) k = Concat<axis = 0>(n, h) y = Expand(t, k)", {"n": ints(3)}),
    "loops_that_meet": ("(float[B,S,8] x) => (float[B,S,8] y)", "a = Relu(x) s = Softmax(x) b = Neg(s) y = Add(a, b)", {}),
    "cast": ("(int64[B,8] x) => (float[B,3] y)", "c = Slice(x, a, b, d) y = Cast<to = 1>(c)", {"a": ints(2), "b": ints(5), "d": ints(1)}),
    "boolean": ("(bool[B,S,6] x) => (bool[B,S,3] y)", "a, b = Split<axis = 2>(x, s) y = Xor(a, b)", {"s": ints(3, 3)}),
    "half": ("(float16[B,S,34] x) => (float16[B,S,17] y)", "a, b = Split<axis = 2>(x, s) y = Mul(a, b)", {"s": ints(17, 17)}),
    "double": ("(double[B,S,6] x) => (double[S,B,6] y)", "t = Transpose<perm=[1,0,2]>(x) y = Neg(t)", {}),
    "empty_part": ("(float[B,S,6] x) => (float[B,S,0] y, float[B,S,6] z)", "a, b = Split<axis = 2>(x, s) y = Neg(a) z = Neg(b)", {"s": ints(0, 6)}),
}  # fmt: skip
SIZES = [{"B": 2, "S": 5, "P": 2}, {"B": 3, "S": 17, "P": 1}, {"B": 1, "S": 1, "P": 3}, {"B": 0, "S": 4, "P": 1}]
TOLERANCE = {**CLOSE_BY_DTYPE, "float32": APPROXIMATE}


def one_model() -> onnx.ModelProto:
    """Every case under its name, side by side; they share the sizes of their dims."""
    parts = []
    for name, (signature, body, constants) in CASES.items():
        model = text_model(signature, body, opset=20, constants=constants)
        parts.append(onnx.compose.add_prefix(model, f"{name}/"))
    return reduce(lambda a, b: onnx.compose.merge_models(a, b, io_map=[]), parts)


def special_feeds(model: onnx.ModelProto, seed: int, sizes: dict[str, int]) -> dict[str, Any]:
    """Random numbers, with NaN and infinities where no kernel sums them up."""
    feeds = random_feeds(model, seed=seed, **sizes)
    for name, array in feeds.items():
        if array.dtype.kind == "f" and array.size > 2 and "MatMul" not in CASES[name.split("/")[0]][1]:
            array.reshape(-1)[[0, array.size // 2, -1]] = np.nan, np.inf, -np.inf
    return feeds


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[onnx.ModelProto, Path]:
    model = one_model()
    folder = tmp_path_factory.mktemp("strided") / "cases"
    ortisan.build(model, folder, keep="all", verify=False, tune="off")
    return model, folder


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{sizes['B']}x{sizes['S']}")
def test_strided_reads(compiled: tuple[onnx.ModelProto, Path], sizes: dict[str, int]) -> None:
    model, folder = compiled
    feeds = special_feeds(model, 1, sizes)
    session = ortisan.load(folder)
    got = dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds), strict=True))
    names = [output.name for output in model.graph.output]
    reference = ortisan.compile(model, whole_graph=True, target="reference").run(feeds)
    for oracle, wanted in (("the numpy reference", reference), ("ONNX Runtime", run_ort(model, feeds))):
        for name, want in zip(names, wanted, strict=True):
            have = got[name]
            assert (have.shape, have.dtype) == (want.shape, want.dtype), name
            tolerance = TOLERANCE.get(str(want.dtype), 0)
            np.testing.assert_allclose(have, want, tolerance, tolerance, err_msg=f"{name} against {oracle}")
