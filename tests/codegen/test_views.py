"""Which moves become strides of the loops, copies and attentions that read them, and which stay copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import ortisan
from ortisan.codegen.cpu.find_views import find_views
from ortisan.codegen.cpu.fuse import fuse
from ortisan.codegen.cpu.plan import GraphPlan
from ortisan.codegen.strides import line_length, walk
from ortisan.registry.dims import symbol
from tests.models.text import text_model

S = symbol("S")


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers)


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def plan(model: onnx.ModelProto) -> GraphPlan:
    return ortisan.compile(model, whole_graph=True).plans[0]


def groups(signature: str, body: str, **constants: np.ndarray) -> list[str]:
    return [group.name for group in plan(text_model(signature, body, opset=20, constants=constants)).groups]


HALVES = "a, b = Split<axis = 2>(x, s)"
FOLDED: dict[str, tuple[Any, ...]] = {
    "split": ("(float[B,S,34] x) => (float[B,S,17] y)", f"{HALVES} c = Relu(a) y = Mul(c, b)", {"s": ints(17, 17)}, "elementwise.relu_mul"),
    "split_expensive": ("(float[B,S,256] x) => (float[B,S,128] y)", f"{HALVES} c = Gelu(a) y = Mul(c, b)", {"s": ints(128, 128)}, "elementwise.gelu_mul"),
    "heads": ("(float[B,S,8] x, float[2,1,4] b) => (float[B,2,S,4] y)", "h = Reshape(x, s) t = Transpose<perm=[0,2,1,3]>(h) y = Add(t, b)",
              {"s": ints(0, 0, 2, 4)}, "elementwise.add"),
    "selected": ("(float[B,3,8] x) => (float[B,8] y)", "a = Gather<axis = 1>(x, i) b = Gather<axis = 1>(x, j) y = Sub(a, b)",
                 {"i": np.array(0), "j": np.array(-1)}, "elementwise.sub"),
    "expanded": ("(float[B,1,8] x, float[B,S,8] z) => (float[B,S,8] y)", "s = Shape(z) e = Expand(x, s) y = Mul(e, z)", {}, "elementwise.mul"),
    "reversed_rows": ("(float[B,5,8] x) => (float[B,5,8] y)", "r = Slice(x, a, b, c, d) y = Relu(r)",
                      {"a": ints(-1), "b": ints(-9), "c": ints(1), "d": ints(-1)}, "elementwise.relu"),
    "a_column_repeated_along_lines": ("(float[B,S,8] x) => (float[B,S,8] y)", "c = Slice(x, a, b, d) y = Mul(x, c)",
                                      {"a": ints(2), "b": ints(3), "d": ints(2)}, "elementwise.mul"),
    "cast": ("(int64[B,8] x) => (float[B,3] y)", "c = Slice(x, a, b, d) y = Cast<to = 1>(c)", {"a": ints(2), "b": ints(5), "d": ints(1)}, "cast.float32"),
    "part_of_a_table": ("(float[B,S,8] x) => (float[B,S,8] y)", "h = Shape<start = 1, end = 2>(x) p = Slice(t, a, h, d) y = Add(x, p)",
                        {"t": np.ones((1, 900, 8), np.float32), "a": ints(0), "d": ints(1)}, "elementwise.add"),
    "swapped_halves": ("(float[B,S,8] x) => (float[B,S,8] y)", f"{HALVES} y = Concat<axis = 2>(b, a)", {"s": ints(4, 4)}, "concatenate"),
    "permute_before_a_copy": ("(float[B,S,2,4] x) => (float[B,2,S,3] y)", "t = Transpose<perm=[0,2,1,3]>(x) y = Slice(t, a, b, d)",
                              {"a": ints(0), "b": ints(3), "d": ints(3)}, "dynamic_slice"),
}  # fmt: skip


@pytest.mark.parametrize(("signature", "body", "constants", "kernel"), FOLDED.values(), ids=FOLDED)
def test_a_move_is_folded(signature: str, body: str, constants: dict[str, np.ndarray], kernel: str) -> None:
    assert groups(signature, body, **constants) == [kernel]


SLICE = {"a": ints(0), "b": ints(4), "d": ints(1)}
COPIED: dict[str, tuple[Any, ...]] = {
    "lines_would_have_gaps": ("(float[B,8] x) => (float[B,4] y)", "c = Slice(x, a, b, d, e) y = Relu(c)", SLICE | {"b": ints(8), "e": ints(2)},
                              ["dynamic_slice", "elementwise.relu"]),
    "reversed_lines": ("(float[B,8] x) => (float[B,8] y)", "c = Slice(x, a, b, d, e) y = Relu(c)",
                       SLICE | {"a": ints(-1), "b": ints(-9), "e": ints(-1)}, ["dynamic_slice", "elementwise.relu"]),
    "transposed": ("(float[B,S,8] x) => (float[B,8,S] y)", "t = Transpose<perm=[0,2,1]>(x) y = Relu(t)", {}, ["permute", "elementwise.relu"]),
    "a_column": ("(float[B,8] x) => (float[B,1] y)", "c = Slice(x, a, b, d) y = Relu(c)", SLICE | {"b": ints(1)}, ["dynamic_slice", "elementwise.relu"]),
    "an_output": ("(float[B,8] x) => (float[B,4] c, float[B,4] y)", "c = Slice(x, a, b, d) y = Relu(c)", SLICE, ["dynamic_slice", "elementwise.relu"]),
    "softmax_reads_it_too": ("(float[B,8] x) => (float[B,4] y)", "c = Slice(x, a, b, d) p = Softmax(c) y = Add(c, p)", SLICE,
                             ["dynamic_slice", "softmax", "elementwise.add"]),
    "a_reshape_that_strides_can_not_express": ("(float[B,8] x) => (float[C] y)", "c = Slice(x, a, b, d) r = Reshape(c, f) y = Relu(r)",
                                               SLICE | {"f": ints(-1)}, ["dynamic_slice", "elementwise.relu"]),
    "short_lines_of_an_expensive_function": ("(float[B,254] x) => (float[B,127] y)", "c = Slice(x, a, b, d) y = Gelu(c)", SLICE | {"b": ints(127)},
                                             ["dynamic_slice", "elementwise.gelu"]),
    "short_lines_far_apart_read_twice": ("(float[9,7,63] x) => (float[7,9,63] y)", "t = Transpose<perm=[1,0,2]>(x) r = Relu(t) p = Softmax(r) y = Mul(t, p)", {},
                                         ["permute", "elementwise.relu", "softmax", "elementwise.mul"]),
}  # fmt: skip


@pytest.mark.parametrize(("signature", "body", "constants", "kernels"), COPIED.values(), ids=COPIED)
def test_a_move_stays_a_copy(signature: str, body: str, constants: dict[str, np.ndarray], kernels: list[str]) -> None:
    assert groups(signature, body, **constants) == kernels


def test_short_lines_far_apart_are_read_once_by_one_loop() -> None:
    body = "t = Transpose<perm=[1,0,2]>(x) r = Relu(t) y = Mul(t, r)"
    assert groups("(float[9,7,3] x) => (float[7,9,3] y)", body) == ["elementwise.relu_mul"]


def test_lines_of_64_far_apart_may_be_read_twice() -> None:
    body = "t = Transpose<perm=[1,0,2]>(x) r = Relu(t) p = Softmax(r) y = Mul(t, p)"
    kernels = groups("(float[9,7,64] x) => (float[7,9,64] y)", body)
    assert kernels == ["elementwise.relu", "softmax", "elementwise.mul"]


def test_a_loop_that_is_one_short_line_reads_it_where_it_is() -> None:
    assert groups("(float[8] x) => (float[3] y)", "c = Slice(x, a, b) y = Gelu(c)", a=ints(2), b=ints(5)) == [
        "elementwise.gelu"
    ]


def test_no_epilogue_is_lost() -> None:
    """The sum joins the product when its other operand is contiguous; it is sliced off for that."""
    body = "r = Slice(x, a, b, d) m = MatMul(x, w) s = Add(m, r) y = Relu(s)"
    kernels = groups("(float[B,8] x) => (float[B,4] y)", body, **SLICE, **weights(w=(8, 4)))
    assert kernels == ["dynamic_slice", "gemm_rcr_add_relu"]


def test_what_could_not_join_the_product_reads_through_strides() -> None:
    body = "m = MatMul(x, w) r = Slice(m, a, b, d) s = Neg(m) t = Slice(s, a, b, d) y = Add(r, t)"
    kernels = groups("(float[B,8] x) => (float[B,4] y)", body, **SLICE, **weights(w=(8, 8)))
    assert kernels == ["gemm_rcr_neg", "elementwise.add"]


def test_an_epilogue_reads_no_strides() -> None:
    body = "m = MatMul(x, w) r = Slice(x, a, b, d) y = Add(m, r)"
    kernels = groups("(float[B,8] x) => (float[B,4] y)", body, **SLICE, **weights(w=(8, 4)))
    assert kernels == ["gemm_rcr", "elementwise.add"]
    body = "m = MatMul(x, w) t = Transpose<perm=[1,0,2]>(m) y = Relu(t)"
    assert groups("(float[4,4,8] x) => (float[4,4,8] y)", body, **weights(w=(8, 8))) == ["gemm_rcr", "elementwise.relu"]


def test_attention_and_a_loop_may_read_one_value() -> None:
    body = """h = Reshape(x, s) q = Transpose<perm=[0,2,1,3]>(h) k = Transpose<perm=[0,2,3,1]>(h) l = MatMul(q, k)
        p = Softmax<axis = -1>(l) o = MatMul(p, q) y = Add(o, q)"""
    kernels = groups("(float[B,S,128] x) => (float[B,2,S,64] y)", body, s=ints(0, 0, 2, 64))
    assert kernels == ["attention", "elementwise.add"]


def test_attention_writes_in_the_order_that_a_loop_reads() -> None:
    body = """k = Transpose<perm=[0,1,3,2]>(q) l = MatMul(q, k) p = Softmax<axis = -1>(l) o = MatMul(p, q)
        t = Transpose<perm=[0,2,1,3]>(o) y = Relu(t)"""
    built = plan(text_model("(float[B,2,S,4] q) => (float[B,S,2,4] y)", body))
    assert [group.name for group in built.groups] == ["attention", "elementwise.relu"]
    assert not built.views.is_strided(built.groups[1].inputs[0])


def test_a_loop_does_not_read_other_elements_of_what_it_makes() -> None:
    body = "r = Relu(x) t = Transpose<perm=[1,0,2]>(r) y = Add(r, t)"
    assert groups("(float[4,4,64] x) => (float[4,4,64] y)", body) == ["elementwise.relu", "elementwise.add"]


def test_the_first_row_is_not_all_of_the_memory() -> None:
    body = "r = Relu(x) f = Slice(r, a, b) y = Sub(r, f)"
    assert groups("(float[4,8] x) => (float[4,8] y)", body, a=ints(0), b=ints(1)) == [
        "elementwise.relu",
        "elementwise.sub",
    ]


def test_heads_cut_and_joined_again_are_not_copied_first() -> None:
    body = """h = Reshape(x, s) q = Transpose<perm=[0,2,1,3]>(h) c = Slice(q, z, m, f) d = Slice(q, m, e, f) n = Abs(d)
        r = Concat<axis = 3>(n, c) u = Mul(q, cos) v = Mul(r, sin) y = Add(u, v)"""
    kernels = groups(
        "(float[B,S,128] x, float[S,64] cos, float[S,64] sin) => (float[B,2,S,64] y)",
        body,
        s=ints(0, 0, 2, 64),
        z=ints(0),
        m=ints(32),
        e=ints(64),
        f=ints(3),
    )
    assert kernels == ["elementwise.abs", "concatenate", "elementwise.mul_mul_add"]


def test_a_loop_that_only_one_other_reads_joins_it() -> None:
    signature = "(float[B,4] x) => (float[B,4] y)"
    assert groups(signature, "a = Relu(x) s = Softmax(x) b = Neg(s) y = Add(a, b)") == [
        "softmax",
        "elementwise.relu_neg_add",
    ]
    two = groups(signature, "a = Relu(x) s = Softmax(a) b = Neg(s) y = Add(a, b)")
    assert two == ["elementwise.relu", "softmax", "elementwise.neg_add"]


def test_memory_that_a_view_still_reads_is_not_given_away() -> None:
    """The product's epilogue is the last to read all of r, but a slice of it is read afterwards."""
    body = "r = Softmax(x) a = Softmax(r) m = MatMul(a, w) n = Add(m, r) o = Softmax(n) {} = Mul(c, e)"
    moves = "c = Slice(r, a0, b0, d0) e = Slice(o, a0, b0, d0)"
    constants = weights(w=(8, 8)) | {"a0": ints(0), "b0": ints(4), "d0": ints(1)}
    body = body.replace("{}", f"{moves} y")
    built = plan(text_model("(float[B,8] x) => (float[B,4] y)", body, constants=constants))
    assert [group.name for group in built.groups][2:] == ["gemm_rcr_add", "softmax", "elementwise.mul"]
    places = built.memory.places
    residual = places[built.groups[0].outputs[0]]
    assert all(places[built.views.root(group.outputs[0])] != residual for group in built.groups[1:])


@pytest.mark.parametrize(
    ("have", "extents", "strides", "length"),
    [
        ((4, 8), (4, 8), (8, 1), 32),
        ((4, 8), (4, 8), (16, 1), 8),
        ((4, 8), (4, 8), (8, 2), None),
        ((4, 1), (4, 8), (3, 0), 8),
        ((8,), (4, 8), (1,), 8),
        ((1, 1), (4, 8), (7, 7), 32),
        ((S, 8), (S, 8), (8, 1), 8 * S),
        ((4, S), (4, 8), (8, 1), None),
        ((S, 8), (4, 8), (8, 1), 8),
        ((4, 1, 8), (4, 1, 8), (8, 5, 1), 32),
        ((), (), (), 1),
    ],
)
def test_lines(have: Any, extents: Any, strides: Any, length: Any) -> None:
    assert line_length(walk(have, extents, strides), extents) == length


def test_folding_takes_nothing_out_of_an_epilogue() -> None:
    """Every mix of operands: what joins a product without strided loops joins one with them."""
    left = ("m", "s", "r", "g")
    bodies = [
        f"r, s = Split<axis = 1>(z, h) m = MatMul(x, w) g = Relu(m) p = Sub({a}, {b}) y = Mul(p, {c})"
        for a in left
        for b in left
        for c in left
    ]
    for body in bodies:
        constants = weights(w=(8, 4)) | {"h": ints(4, 4)}
        model = text_model("(float[B,8] x, float[B,8] z) => (float[B,4] y)", body, constants=constants)
        built = plan(model)
        joined = [
            {node for group in fuse(built.graph, views) if group.anchor for node in group.chain}
            for views in (find_views(built.graph), built.views)
        ]
        assert joined[0] <= joined[1], body
