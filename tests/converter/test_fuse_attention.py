"""Attention written out: every form of key, scale, mask and guard; near misses; shared intermediates."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from ortisan.converter.passes.canonical import canonicalize
from ortisan.converter.read.load import load_model
from tests.models import private_ops
from tests.models.private_ops import check_private_ops, one_fused_node, private_nodes
from tests.models.text import Array, random_feeds, run_ort, text_model
from tests.tolerances import APPROXIMATE, BLOCK, NOTHING_SEEN, SAME

F32 = np.float32
LOWEST = np.finfo(F32).min
CONSTANTS = {
    "c": F32(0.3),
    "c1": np.array([0.3], F32),
    "root": F32(np.sqrt(0.3)),
    "inverse": F32(1 / 0.3),
    "zero": F32(0),
    "zero1": np.zeros(1, F32),
    "lowest": LOWEST,
    "inf": F32(-np.inf),
    "inf1": np.array([-np.inf], F32),
    "filter": F32(-10000),
    "minus1": np.array([-1]),
    "minus2": np.array([-2]),
    "far": np.array([2**63 - 1]),
    "near": np.array([-(2**63)]),
    "vector": np.array([0.1, 0.2, 0.3, 0.4], F32),
}
QKV = "float[B,2,S,4] q, float[B,2,T,4] k, float[B,2,T,6] v"
RESULT = "(float[B,2,S,6] y)"
KEY = "kt = Transpose<perm = [0, 1, 3, 2]>(k)"
SCORES = f"{KEY} s0 = MatMul(q, kt) s = Mul(s0, c)"
TAIL = "p = Softmax<axis = -1>(l) y = MatMul(p, v)"
GUARDED = "p = Softmax<axis = -1>(l) bad = IsNaN(p) pp = Where(bad, zero, p) y = MatMul(pp, v)"


def model(body: str, mask: str = "", *, qkv: str = QKV, result: str = RESULT, opset: int = 17) -> onnx.ModelProto:
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    constants = {name: value for name, value in CONSTANTS.items() if name in words}
    return text_model(f"({qkv}{', ' + mask if mask else ''}) => {result}", body, opset=opset, constants=constants)


def feeds_for(proto: onnx.ModelProto) -> dict[str, Array]:
    """Random values; the first row of a boolean or integer mask sees nothing."""
    feeds = random_feeds(proto, B=2, S=3, T=5)
    for name, value in feeds.items():
        if value.dtype == np.bool_:
            feeds[name] = value.copy()
            feeds[name][0, ...] = False
    return feeds


def fused_once(
    proto: onnx.ModelProto,
    *,
    scale: float = 0.3,
    others: tuple[str, ...] = (),
    tolerance: float = BLOCK,
    **attributes: str | float,
) -> None:
    """One fused node with these attributes besides `others`; it means in numpy what the model means in ORT."""
    canonical = one_fused_node(proto, "Attention", others, {"scale": pytest.approx(scale, rel=SAME), **attributes})[0]
    feeds = feeds_for(proto)
    actual = check_private_ops(canonical, feeds, tolerance=tolerance)[0]
    np.testing.assert_allclose(actual, run_ort(proto, feeds)[0], rtol=APPROXIMATE, atol=max(SAME, tolerance / 2))


not_fused = partial(private_ops.not_fused, op_type="Attention")


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize(
    ("scores", "scale"),
    [
        (f"{KEY} s0 = MatMul(q, kt) s = Mul(s0, c)", 0.3),
        (f"{KEY} s0 = MatMul(q, kt) s = Mul(c1, s0)", 0.3),
        (f"{KEY} s0 = MatMul(q, kt) s = Div(s0, inverse)", 0.3),
        (f"{KEY} qs = Mul(q, c) s = MatMul(qs, kt)", 0.3),
        (f"{KEY} qs = Div(q, inverse) s = MatMul(qs, kt)", 0.3),
        (f"{KEY} qs = Mul(q, root) ks = Mul(kt, root) s = MatMul(qs, ks)", 0.3),
        ("ks = Mul(k, c) kt = Transpose<perm = [0, 1, 3, 2]>(ks) s = MatMul(q, kt)", 0.3),
        (f"{KEY} qs = Mul(q, root) s0 = MatMul(qs, kt) s1 = Mul(s0, root) s = Mul(s1, c)", 0.09),
        (f"{KEY} s = MatMul(q, kt)", 1.0),
    ],
)
def test_scales(scores: str, scale: float, opset: int) -> None:
    proto = model(f"{scores} p = Softmax<axis = 3>(s) y = MatMul(p, v)", opset=opset)
    fused_once(proto, scale=scale, mask="none", guarded=0, cap=0.0)


def test_a_scaled_q_or_k_that_is_used_elsewhere_is_the_input() -> None:
    body = f"{KEY} qs = Mul(q, c) s = MatMul(qs, kt) p = Softmax(s) y = MatMul(p, v)"
    fused_once(model(body, result="(float[B,2,S,6] y, float[B,2,S,4] qs)"), scale=1.0, others=("Mul",))
    body = "ks = Mul(k, c) kt = Transpose<perm = [0, 1, 3, 2]>(ks) s = MatMul(q, kt) p = Softmax(s) y = MatMul(p, v)"
    fused_once(model(body, result="(float[B,2,S,6] y, float[B,2,T,4] ks)"), scale=1.0, others=("Mul",))


def test_the_key_from_its_view() -> None:
    qkv = "float[B,2,S,4] q, float[B,T,2,4] k, float[B,2,T,6] v"
    key = "kt = Transpose<perm = [0, 2, 3, 1]>(k)"
    fused_once(model(f"{key} s0 = MatMul(q, kt) l = Mul(s0, c) {TAIL}", qkv=qkv), others=("Transpose",))
    fused_once(model(f"{key} ks = Mul(kt, c) l = MatMul(q, ks) {TAIL}", qkv=qkv), others=("Transpose",))


DETOUR = """
    shape = Shape(k) d = Slice(shape, minus1, far) t = Slice(shape, minus2, minus1) bh = Slice(shape, near, minus2)
    flat = Concat<axis = 0>(minus1, t, d) k3 = Reshape(k, flat) k3t = Transpose<perm = [0, 2, 1]>(k3)
    full = Concat<axis = 0>(bh, d, t) kt = Reshape(k3t, full)"""


def test_the_key_by_a_detour_through_three_dims() -> None:
    fused_once(model(f"{DETOUR} s0 = MatMul(q, kt) l = Mul(s0, c) {TAIL}"))
    wrong = DETOUR.replace("Concat<axis = 0>(bh, d, t)", "Concat<axis = 0>(bh, t, d)")
    qkv = "float[B,2,S,4] q, float[B,2,4,5] k, float[B,2,5,6] v"
    canonical = canonicalize(load_model(model(f"{wrong} l = MatMul(q, kt) {TAIL}", qkv=qkv)))
    assert canonical.counts["straighten transposes"] == 0


@pytest.mark.parametrize(
    "mask", ["float[B,2,S,T] m", "float[B,1,1,T] m", "float[1,1,S,T] m", "float[S,T] m", "float[T] m"]
)
@pytest.mark.parametrize("add", ["Add(s, m)", "Add(m, s)"])
@pytest.mark.parametrize(("tail", "guarded"), [(TAIL, 0), (GUARDED, 1)])
def test_additive_masks(mask: str, add: str, tail: str, guarded: int) -> None:
    fused_once(model(f"{SCORES} l = {add} {tail}", mask), mask="additive", guarded=guarded)


BOOLEAN = "bool[B,1,S,T] m"


@pytest.mark.parametrize(
    ("body", "hidden", "guarded"),
    [
        (f"{SCORES} b = Where(m, zero, lowest) l = Add(s, b) {TAIL}", LOWEST, 0),
        (f"{SCORES} b = Where(m, zero1, inf1) l = Add(b, s) {GUARDED}", -np.inf, 1),
        (f"{SCORES} b = Where(m, zero, lowest) l = Add(s, b) {GUARDED}", LOWEST, 1),
        (f"{SCORES} b = Where(m, zero, inf) l = Add(s, b) {TAIL}", -np.inf, 0),
        (f"{SCORES} l = Where(m, s, lowest) {TAIL}", LOWEST, 0),
        (f"{SCORES} l = Where(m, s, inf) {GUARDED}", -np.inf, 1),
        (f"{SCORES} l = Where(m, s, inf) {TAIL}", -np.inf, 0),
        (f"{SCORES} l = Where(m, s, filter) {TAIL}", -10000.0, 0),
        (f"{SCORES} n = Not(m) l = Where(n, lowest, s) {TAIL}", LOWEST, 0),
        (f"{SCORES} n = Not(m) b = Where(n, lowest, zero) l = Add(s, b) {TAIL}", LOWEST, 0),
    ],
)
def test_boolean_masks(body: str, hidden: float, guarded: int) -> None:
    """feeds_for hides every key of some rows: uniform, NaN, or zero with the guard."""
    fused_once(model(body, BOOLEAN), mask="boolean", hidden=float(hidden), guarded=guarded)


def test_a_mask_that_is_true_where_a_key_is_hidden() -> None:
    fused_once(model(f"{SCORES} l = Where(m, lowest, s) {TAIL}", BOOLEAN), mask="boolean", others=("Not",))
    body = f"{SCORES} b = Where(m, inf, zero) l = Add(s, b) {GUARDED}"
    fused_once(model(body, BOOLEAN), mask="boolean", hidden=-np.inf, others=("Not",))


def test_a_sum_with_a_number_that_leaves_the_logit_its_say_is_additive() -> None:
    """The numpy meaning is in float64; near -10000, where nothing is seen, float32 has steps of 0.001."""
    proto = model(f"{SCORES} b = Where(m, zero, filter) l = Add(s, b) {TAIL}", BOOLEAN)
    fused_once(proto, mask="additive", others=("Where",), tolerance=NOTHING_SEEN)


def test_a_mask_that_two_attentions_share() -> None:
    second = """kt2 = Transpose<perm = [0, 1, 3, 2]>(q) s2 = MatMul(q, kt2) l2 = Add(s2, b)
                p2 = Softmax(l2) z = MatMul(p2, q)"""
    body = f"b = Where(m, zero, lowest) {SCORES} l = Add(s, b) {TAIL} {second}"
    qkv = "float[B,2,S,4] q, float[B,2,S,4] k, float[B,2,S,6] v"
    proto = model(body, "bool[B,1,S,S] m", qkv=qkv, result="(float[B,2,S,6] y, float[B,2,S,4] z)")
    canonical = canonicalize(load_model(proto))
    nodes = private_nodes(canonical.model, "Attention")
    assert [node.attributes["mask"].value for node in nodes] == ["boolean", "boolean"]
    assert [node.op_type for node in canonical.model.graph] == ["Attention", "Attention"]


@pytest.mark.parametrize(
    ("body", "mask", "others"),
    [
        (f"{SCORES} a = Add(s, r) l = Add(a, m) {TAIL}", "float[1,2,S,T] r, float[B,1,1,T] m", ("Add",)),
        (f"{SCORES} a = Add(r, s) l = Where(m, a, lowest) {TAIL}", "float[S,T] r, bool[B,1,S,T] m", ("Where",)),
        (f"{SCORES} a = Where(m, s, lowest) l = Add(a, r) {TAIL}", "float[S,T] r, bool[B,1,S,T] m", ("Add", "Where")),
        (
            f"{SCORES} b = Where(m, zero, inf) a = Add(s, r) l = Add(a, b) {GUARDED}",
            "float[S,T] r, bool[B,1,S,T] m",
            ("Where",),
        ),
    ],
)
def test_several_masks_become_one(body: str, mask: str, others: tuple[str, ...]) -> None:
    fused_once(model(body, mask), mask="additive", others=others)


@pytest.mark.parametrize(
    ("cap", "others"),
    [
        ("d = Div(s, inverse) t = Tanh(d) l = Mul(t, inverse)", ()),
        ("d = Mul(s, c) t = Tanh(d) l = Div(t, c)", ()),
        ("d = Div(s, inverse) t = Tanh(d) u = Mul(t, inverse) l = Add(u, m)", ()),
    ],
)
def test_caps(cap: str, others: tuple[str, ...]) -> None:
    mask = "float[S,T] m" if "m)" in cap else ""
    fused_once(model(f"{SCORES} {cap} {TAIL}", mask), others=others, cap=pytest.approx(1 / 0.3, rel=SAME))


REPEAT = """k5 = Unsqueeze(k, two) ke = Expand(k5, shape) kk = Reshape(ke, flat)
            v5 = Unsqueeze(v, two) ve = Expand(v5, shape) vv = Reshape(ve, flat)"""


def repeated(body: str, qkv: str, *, shape: tuple[int, ...] = (2, 2, 3, 5, 4)) -> onnx.ModelProto:
    constants = {"two": np.array([2]), "shape": np.array(shape), "flat": np.array([2, 6, 5, 4]), "c": F32(0.3)}
    words = body.replace("(", " ").replace(")", " ").replace(",", " ").split()
    used = {name: value for name, value in constants.items() if name in words}
    return text_model(f"({qkv}) => (float[2,6,3,4] y)", body, constants=used)


def test_heads_that_several_queries_share() -> None:
    tail = "kt = Transpose<perm = [0, 1, 3, 2]>(kk) s = MatMul(q, kt) l = Mul(s, c) p = Softmax(l) y = MatMul(p, vv)"
    proto = repeated(f"{REPEAT} {tail}", "float[2,6,3,4] q, float[2,2,5,4] k, float[2,2,5,4] v")
    fused_once(proto)
    (node,) = private_nodes(canonicalize(load_model(proto)).model, "Attention")
    assert [list(value.shape) for value in node.inputs] == [[2, 6, 3, 4], [2, 2, 5, 4], [2, 2, 5, 4]]


def test_heads_of_which_only_the_keys_are_repeated_stay_repeated() -> None:
    keys = REPEAT.split("v5", maxsplit=1)[0]
    tail = "kt = Transpose<perm = [0, 1, 3, 2]>(kk) s = MatMul(q, kt) l = Mul(s, c) p = Softmax(l) y = MatMul(p, v)"
    proto = repeated(f"{keys} {tail}", "float[2,6,3,4] q, float[2,2,5,4] k, float[2,6,5,4] v")
    fused_once(proto, others=("Unsqueeze", "Expand", "Reshape"))


def test_heads_repeated_in_another_order() -> None:
    body = """k5 = Unsqueeze(k, one) ke = Expand(k5, shape) kk = Reshape(ke, flat)
              kt = Transpose<perm = [0, 1, 3, 2]>(kk) s = MatMul(q, kt) l = Mul(s, c) p = Softmax(l) y = MatMul(p, kk)"""
    constants = {
        "one": np.array([1]),
        "shape": np.array([2, 3, 2, 5, 4]),
        "flat": np.array([2, 6, 5, 4]),
        "c": F32(0.3),
    }
    signature = "(float[2,6,3,4] q, float[2,2,5,4] k) => (float[2,6,3,4] y)"
    fused_once(text_model(signature, body, constants=constants), others=("Unsqueeze", "Expand", "Reshape"))


def test_half_precision_with_a_softmax_in_float() -> None:
    body = f"{KEY} s = MatMul(q, kt) w = Cast<to = 1>(s) pw = Softmax(w) p = Cast<to = 10>(pw) y = MatMul(p, v)"
    qkv = QKV.replace("float[", "float16[")
    canonical = canonicalize(load_model(model(body, qkv=qkv, result="(float16[B,2,S,6] y)")))
    (node,) = private_nodes(canonical.model, "Attention")
    assert node.outputs[0].dtype == ir.DataType.FLOAT16


@pytest.mark.parametrize(
    ("body", "mask", "reason"),
    [
        (f"{SCORES} p = Softmax<axis = 2>(s) y = MatMul(p, v)", "", "over axis 2, not over the last"),
        (f"{SCORES} l = Mul(s, vector) {TAIL}".replace("vector", "m"), "float[T] m", "not a scaled product of q and k"),
        (f"{SCORES} a = Abs(s) l = Add(a, m) {TAIL}", "float[T] m", "neither operand of the sum"),
        (f"s = MatMul(q, k) l = Mul(s, c) {TAIL}", "", "is not a transposed key"),
        (
            f"{SCORES} l = Where(m, s, r) {TAIL}",
            "bool[B,1,S,T] m, float[S,T] r",
            "does not choose between logits and a number",
        ),
        (
            f"{SCORES} a = Where(m, s, filter) l = Add(a, r) {TAIL}",
            "float[S,T] r, bool[B,1,S,T] m",
            "a number too small to absorb",
        ),
        (f"{SCORES} a = Add(s, m) l = Mul(a, c) {TAIL}", "float[S,T] m", "scaled after a mask"),
        (f"{SCORES} t = Tanh(s) l = Abs(t) {TAIL}", "", "not a scaled product of q and k"),
        (f"{SCORES} l = Add(s, m) {TAIL}", "float[B,3,S,T] m", "does not fit"),
        (f"{SCORES} l = Add(s, m) {TAIL}", "float[1,B,2,S,T] m", "does not fit"),
        (f"{SCORES} l = Add(s, m) {TAIL}", "float[5,1,S,T] m", "may be larger than"),
        (f"{SCORES} l = Add(s, m) {GUARDED.replace('zero', 'c')}", "float[T] m", "does not insert zeros"),
    ],
)
def test_near_misses(body: str, mask: str, reason: str) -> None:
    qkv = QKV.replace("float[B,2,T,4] k", "float[B,2,4,T] k") if "MatMul(q, k)" in body else QKV
    result = "(float[?,?,?,?,?] y)" if "[1,B" in mask else "(float[?,?,?,?] y)"
    not_fused(model(body, mask, qkv=qkv, result=result), reason)


@pytest.mark.parametrize(
    ("qkv", "mask", "body"),
    [
        (
            "float16[B,2,S,4] q, float16[B,2,T,4] k, float[B,2,T,6] v",
            "",
            f"{KEY} s = MatMul(q, kt) w = Cast<to = 1>(s) p = Softmax(w) y = MatMul(p, v)",
        ),
        (
            "float16[B,2,S,4] q, float16[B,2,T,4] k, float16[B,2,T,6] v",
            "float[S,T] m",
            f"{KEY} s = MatMul(q, kt) w = Cast<to = 1>(s) l = Add(w, m) pw = Softmax(l) p = Cast<to = 10>(pw) y = MatMul(p, v)",
        ),
    ],
)
def test_operands_of_several_types(qkv: str, mask: str, body: str) -> None:
    result = "(float16[B,2,S,6] y)" if mask else "(float[B,2,S,6] y)"
    not_fused(model(body, mask, qkv=qkv, result=result), "of several types: FLOAT, FLOAT16")


@pytest.mark.parametrize(
    ("qkv", "reason"),
    [
        (
            "float[B,2,S,4] q, float[B,1,T,4] k, float[B,1,T,6] v",
            "head count of q and k are not known to be equal: 2 and 1",
        ),
        ("float[B,2,S,4] q, float[A,2,T,4] k, float[B,2,T,6] v", "batch of q and k are not known to be equal: B and A"),
        ("float[B,2,S,4] q, float[B,2,T,4] k, float[T,6] v", "its v ('v') has 2 dims, expected 4"),
    ],
)
def test_shapes_that_do_not_fit(qkv: str, reason: str) -> None:
    not_fused(model(f"{SCORES} {TAIL}".replace("(l)", "(s)"), qkv=qkv, result="(float[?,?,?,?] y)"), reason)


def test_before_opset_13_softmax_is_over_all_axes_from_1_by_default() -> None:
    body = f"{SCORES} p = Softmax(s) y = MatMul(p, v)"
    not_fused(model(body, opset=12), "over axis 1")
    fused_once(model(body, opset=13))


def test_transposed_keys_that_are_used_elsewhere() -> None:
    proto = model(f"{SCORES} z = Abs(kt) {TAIL}".replace("(l)", "(s)"), result="(float[B,2,S,6] y, float[?,?,?,?] z)")
    fused_once(proto, others=("Transpose", "Abs"))


def test_a_mask_whose_shape_is_only_known_at_run_time() -> None:
    proto = model(f"{SCORES} l = Add(s, m) {TAIL}", "float[M,1,S,N] m", result="(float[?,?,?,?] y)")
    assert len(private_nodes(canonicalize(load_model(proto)).model, "Attention")) == 1


@pytest.mark.parametrize("shared", ["s0", "s", "l", "p", "pp"])
def test_shared_intermediates(shared: str) -> None:
    body = f"{SCORES} l = Add(s, m) {GUARDED}"
    not_fused(
        model(body, "float[S,T] m", result=f"(float[B,2,S,6] y, float[?,?,?,?] {shared})"),
        f"'{shared}' is used elsewhere",
    )
    abs_too = model(f"{body} z = Abs({shared})", "float[S,T] m", result="(float[B,2,S,6] y, float[?,?,?,?] z)")
    not_fused(abs_too, f"'{shared}' is used elsewhere")


def test_an_excluded_node() -> None:
    proto = model(f"{SCORES.replace('s0 =', '[mine] s0 =')} {TAIL}".replace("(l)", "(s)"))
    canonical = canonicalize(load_model(proto), frozen=lambda node: node.name == "mine")
    assert [miss.reason for miss in canonical.near_misses] == ["excluded"]
    assert not private_nodes(canonical.model, "Attention")


def test_the_fused_node_has_shape_origins_and_a_body() -> None:
    proto = model(f"{SCORES.replace('s0 =', '[scores] s0 =')} l = Add(s, m) {TAIL}", "float[S,T] m")
    canonical = canonicalize(load_model(proto))
    (node,) = private_nodes(canonical.model, "Attention")
    assert list(node.outputs[0].shape) == ["B", 2, "S", 6]
    assert node.outputs[0].dtype == ir.DataType.FLOAT
    assert "scores" in node.metadata_props["ortisan.origin"]
    assert [inner.op_type for inner in canonical.model.functions[node.op_identifier()]] == [
        "Transpose", "MatMul", "Constant", "Mul", "Add", "Softmax", "MatMul"
    ]  # fmt: skip
