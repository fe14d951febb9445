"""Layer norm and gelu written out: every form, near misses, shared intermediates."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest

from ortisan.converter.fuse import expand_private
from ortisan.converter.passes.canonical import canonicalize
from ortisan.converter.read.load import load_model
from tests.models.private_ops import check_private_ops, fused_once, not_fused, private_nodes
from tests.models.text import random_feeds, text_model

F32 = np.float32
RNG = np.random.default_rng(2)
CONSTANTS = {
    "half": F32(0.5),
    "half1": np.array([0.5], F32),
    "one": F32(1),
    "two": F32(2),
    "three": F32(3),
    "sqrt2": F32(np.sqrt(2)),
    "rsqrt2": F32(np.sqrt(0.5)),
    "slope": F32(np.sqrt(2 / np.pi)),
    "cubic": F32(0.044715),
    "eps": F32(1e-3),
    "scale": RNG.uniform(0.5, 1.5, 8).astype(F32),
    "bias": RNG.normal(size=8).astype(F32),
    "scale3": RNG.uniform(0.5, 1.5, (1, 1, 8)).astype(F32),
    "last": np.array([-1]),
    "first": np.array([0]),
    "last_two": np.array([1, 2]),
    "scale2": RNG.uniform(0.5, 1.5, (4, 8)).astype(F32),
}


def model(body: str, opset: int, signature: str = "(float[B,4,8] x) => (float[B,4,8] y)") -> onnx.ModelProto:
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    constants = {name: value for name, value in CONSTANTS.items() if name in words}
    return text_model(signature, body, opset=opset, constants=constants)


ERF_ARGUMENTS = ["Div(x, sqrt2)", "Mul(x, rsqrt2)", "Mul(rsqrt2, x)"]
PRODUCTS = [
    "p = Mul(x, c) y = Mul(p, half)",
    "p = Mul(c, x) y = Mul(half, p)",
    "p = Mul(c, half) y = Mul(x, p)",
    "p = Mul(half1, c) y = Mul(p, x)",
    "p = Mul(x, half) y = Mul(p, c)",
    "p = Mul(half, x) y = Mul(c, p)",
]
RAISED = ["c = Add(e, one)", "c = Add(one, e)"]


@pytest.mark.parametrize("forms", list(product(ERF_ARGUMENTS, RAISED, PRODUCTS)))
def test_gelu_erf(forms: tuple[str, str, str]) -> None:
    argument, raised, tail = forms
    canonical = fused_once(model(f"a = {argument} e = Erf(a) {raised} {tail}", 17), "Gelu")
    assert canonical.near_misses == ()


TANH_ARGUMENTS = [
    "q = Pow(x, three) r = Mul(q, cubic) s = Add(x, r) a = Mul(s, slope)",
    "q = Mul(x, x) qq = Mul(q, x) r = Mul(cubic, qq) s = Add(r, x) a = Mul(slope, s)",
    "q = Mul(x, x) qq = Mul(x, q) r = Mul(qq, cubic) s = Add(x, r) a = Mul(s, slope)",
    "u = Mul(x, slope) q = Mul(x, cubic) r = Mul(q, x) s = Add(r, one) a = Mul(u, s)",
    "q = Mul(x, x) r = Mul(q, cubic) s = Add(one, r) t = Mul(x, s) a = Mul(t, slope)",
]


@pytest.mark.parametrize("forms", list(product(TANH_ARGUMENTS, PRODUCTS)))
def test_gelu_tanh(forms: tuple[str, str]) -> None:
    argument, tail = forms
    canonical = canonicalize(load_model(proto := model(f"{argument} e = Tanh(a) c = Add(e, one) {tail}", 13)))
    (node,) = private_nodes(canonical.model, "Gelu")
    assert node.attributes["approximate"].value == "tanh"
    check_private_ops(canonical, random_feeds(proto))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("a = Div(x, two) e = Erf(a) c = Add(e, one) p = Mul(x, c) y = Mul(p, half)", "is 2, expected 1.41421"),
        ("a = Div(x, sqrt2) e = Erf(a) c = Add(e, two) p = Mul(x, c) y = Mul(p, half)", "is 2, expected 1"),
        ("a = Div(x, sqrt2) e = Erf(a) c = Add(e, one) p = Mul(x, c) y = Mul(p, scale)", "is not a constant number"),
        (
            "q = Pow(x, two) r = Mul(q, cubic) s = Add(x, r) a = Mul(s, slope) e = Tanh(a) c = Add(e, one) "
            "p = Mul(x, c) y = Mul(p, half)",
            "is 2, expected 3",
        ),
    ],
)
def test_gelu_near_miss(body: str, reason: str) -> None:
    not_fused(model(body, 17), reason, "Gelu")


def test_gelu_of_another_x_is_no_gelu() -> None:
    body = "n = Abs(x) a = Div(n, sqrt2) e = Erf(a) c = Add(e, one) p = Mul(x, c) y = Mul(p, half)"
    canonical = canonicalize(load_model(model(body, 17)))
    assert not private_nodes(canonical.model, "Gelu")


GELU = "a = Div(x, sqrt2) e = Erf(a) c = Add(e, one) p = Mul(x, c) y = Mul(p, half)"


@pytest.mark.parametrize("shared", ["a", "e", "c", "p"])
def test_gelu_with_a_shared_intermediate(shared: str) -> None:
    both = "(float[B,4,8] x) => (float[B,4,8] y, float[B,4,8] z)"
    not_fused(model(f"{GELU} z = Abs({shared})", 17, both), f"'{shared}' is used elsewhere too", "Gelu")
    as_output = f"(float[B,4,8] x) => (float[B,4,8] y, float[B,4,8] {shared})"
    not_fused(model(GELU, 17, as_output), f"'{shared}' is used elsewhere too", "Gelu")


def test_gelu_with_an_excluded_node() -> None:
    proto = model(GELU.replace("e = ", "[mine] e = "), 17)
    canonical = canonicalize(load_model(proto), frozen=lambda node: node.name == "mine")
    assert not private_nodes(canonical.model, "Gelu")
    assert [miss.reason for miss in canonical.near_misses] == ["excluded"]


def test_expanding_gives_back_the_nodes() -> None:
    proto = model(GELU, 17)
    canonical = canonicalize(load_model(proto))
    assert expand_private(canonical.model) == 1
    assert [node.op_type for node in canonical.model.graph] == [node.op_type for node in proto.graph.node]
    assert [node.outputs[0].name for node in canonical.model.graph] == ["a", "e", "c", "p", "y"]
    assert not canonical.model.functions
    assert "ortisan" not in canonical.model.opset_imports


def mean(result: str, of: str, opset: int, axes: str = "last") -> str:
    numbers = {"last": "[-1]", "last_two": "[1, 2]", "first": "[0]"}[axes]
    return f"{result} = ReduceMean({of}, {axes})" if opset >= 18 else f"{result} = ReduceMean<axes = {numbers}>({of})"


def layer_norm(
    opset: int,
    *,
    square: str = "Pow(d, two)",
    quotient: str = "n = Div(d, r)",
    tail: str = "s = Mul(n, scale) y = Add(s, bias)",
    axes: str = "last",
    axes2: str = "",
    eps: str = "Add(v, eps)",
) -> str:
    first, second = mean("m", "x", opset, axes), mean("v", "q", opset, axes2 or axes)
    return f"{first} d = Sub(x, m) q = {square} {second} w = {eps} r = Sqrt(w) {quotient} {tail}"


@pytest.mark.parametrize("opset", [9, 13, 18])
@pytest.mark.parametrize("square", ["Pow(d, two)", "Mul(d, d)"])
@pytest.mark.parametrize("quotient", ["n = Div(d, r)", "i = Reciprocal(r) n = Mul(d, i)"])
@pytest.mark.parametrize(
    "tail",
    [
        "s = Mul(n, scale) y = Add(s, bias)",
        "s = Mul(scale, n) y = Add(bias, s)",
        "y = Mul(n, scale)",
    ],
)
def test_layer_norm(opset: int, square: str, quotient: str, tail: str) -> None:
    canonical = fused_once(
        model(layer_norm(opset, square=square, quotient=quotient, tail=tail), opset), "LayerNormalization"
    )
    assert canonical.near_misses == ()


def test_layer_norm_over_two_axes_and_with_scale_and_bias_as_inputs() -> None:
    body = layer_norm(13, axes="last_two", tail="y = Mul(n, scale2)")
    canonical = fused_once(model(body, 13), "LayerNormalization")
    assert canonical.counts["fuse LayerNormalization"] == 1
    inputs = "(float[B,4,8] x, float[8] gain, float[8] shift) => (float[B,4,8] y)"
    fused_once(model(layer_norm(18, tail="s = Mul(gain, n) y = Add(shift, s)"), 18, inputs), "LayerNormalization")


def test_layer_norm_with_two_equal_subtractions() -> None:
    body = layer_norm(13).replace("q = Pow(d, two)", "d2 = Sub(x, m) q = Pow(d2, two)")
    canonical = canonicalize(load_model(model(body, 13)))
    assert len(private_nodes(canonical.model, "LayerNormalization")) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"axes": "first", "tail": "y = Mul(n, scale)"}, "over axes [0] of 3, not over the last ones"),
        ({"axes2": "last_two", "tail": "y = Mul(n, scale)"}, "its two means are over different axes"),
        ({"square": "Pow(d, three)"}, "the exponent is 3, expected 2"),
        ({"eps": "Add(v, scale)"}, "epsilon ('scale') is not a constant number"),
        ({"tail": "y = Mul(n, scale3)"}, "its scale has shape [1,1,8], expected [8]"),
        ({"tail": "s = Mul(n, scale) y = Add(s, one)"}, "its bias has shape [], expected [8]"),
    ],
)
def test_layer_norm_near_miss(options: dict[str, str], reason: str) -> None:
    canonical = canonicalize(load_model(model(layer_norm(13, **options), 13)))
    assert any(reason in miss.reason for miss in canonical.near_misses), canonical.near_misses


@pytest.mark.parametrize("shared", ["m", "d", "q", "v", "w", "r", "n", "s"])
def test_layer_norm_with_a_shared_intermediate(shared: str) -> None:
    outputs = f"(float[B,4,8] x) => (float[B,4,8] y, float[?,?,?] {shared})"
    proto = model(layer_norm(13), 13, outputs)
    canonical = canonicalize(load_model(proto))
    if shared == "s":
        assert len(private_nodes(canonical.model, "LayerNormalization")[0].inputs) == 2
    else:
        not_fused(proto, f"'{shared}' is used elsewhere too", "LayerNormalization")
    check_private_ops(canonical, random_feeds(proto))
