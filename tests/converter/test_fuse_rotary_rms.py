"""RMS normalization and rotary embedding written out: every form, near misses, shared intermediates."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from ortisan.converter.passes.canonical import canonicalize
from ortisan.converter.read.load import load_model
from tests.models.private_ops import fused_once, not_fused, private_nodes
from tests.models.text import Array, text_model

F32 = np.float32
WEIGHT = np.array([0.5, 1.5, -1.0, 2.0], F32)
RMS = {
    "two": F32(2), "three": F32(3), "one": F32(1), "half": F32(-0.5), "eps": np.array([1e-3], F32), "w": WEIGHT,
    "axes": np.array([-1]), "front": np.array([1]), "wide": np.ones((4, 4), F32),
}  # fmt: skip
ROTARY = {
    "zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "four": np.array([4]), "end": np.array([2**63 - 1]),
    "last": np.array([3]), "minus": np.array([-1]), "rows": np.array([2]),
}  # fmt: skip
MEAN = "sq = Pow(x, two) mean = ReduceMean<axes = [-1]>(sq) v = Add(mean, eps)"
ROOT = f"{MEAN} r = Sqrt(v)"
SWAP = "low = Slice(x, zero, two, last, one) high = Slice(x, two, end, minus) neg = Neg(high) s = Concat<axis = -1>(neg, low)"
TABLES = "float[B,1,S,4] cos, float[B,1,S,4] sin"


def model(signature: str, body: str, known: dict[str, Array], opset: int = 17) -> onnx.ModelProto:
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    constants = {name: value for name, value in known.items() if name in words}
    return text_model(signature, body, opset=opset, constants=constants)


def rms(body: str, *, x: str = "float[B,S,4] x", result: str = "(float[B,S,4] y)", opset: int = 17) -> onnx.ModelProto:
    return model(f"({x}) => {result}", body, RMS, opset)


@pytest.mark.parametrize(
    "body",
    [
        f"{ROOT} i = Reciprocal(r) n = Mul(x, i) y = Mul(w, n)",
        f"{ROOT} i = Reciprocal(r) n = Mul(i, x) y = Mul(n, w)",
        f"{ROOT} i = Div(one, r) n = Mul(x, i) y = Mul(n, w)",
        f"{ROOT} n = Div(x, r) y = Mul(n, w)",
        f"{MEAN} i = Pow(v, half) n = Mul(x, i) y = Mul(n, w)",
        f"{ROOT.replace('Pow(x, two)', 'Mul(x, x)')} n = Div(x, r) y = Mul(w, n)",
    ],
)
def test_rms_norms(body: str) -> None:
    fused_once(rms(body), "RMSNormalization", axis=-1, epsilon=pytest.approx(1e-3))


def test_rms_norm_with_axes_as_an_input() -> None:
    body = ROOT.replace("ReduceMean<axes = [-1]>(sq)", "ReduceMean(sq, axes)")
    fused_once(rms(f"{body} n = Div(x, r) y = Mul(n, w)", opset=18), "RMSNormalization")


def test_rms_norm_in_half_precision() -> None:
    body = f"xw = Cast<to = 1>(x) {ROOT.replace('(x,', '(xw,')} i = Reciprocal(r) nw = Mul(xw, i) n = Cast<to = 10>(nw) y = Mul(h, n)"
    proto = text_model(
        "(float16[B,S,4] x) => (float16[B,S,4] y)", body,
        constants={"two": F32(2), "eps": F32(1e-3), "h": WEIGHT.astype(np.float16)},
    )  # fmt: skip
    (node,) = private_nodes(canonicalize(load_model(proto)).model, "RMSNormalization")
    assert node.inputs[0].name == "x"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"{ROOT.replace('two', 'three')} n = Div(x, r) y = Mul(n, w)", "the constant for 2 is 3"),
        (f"{ROOT.replace('[-1]', '[1]')} n = Div(x, r) y = Mul(n, w)", "not over the last ones"),
        (f"{ROOT} n = Div(x, r) y = Mul(n, wide)", "its scale has shape [4,4], expected [4]"),
    ],
)
def test_rms_norm_near_misses(body: str, reason: str) -> None:
    not_fused(rms(body, x="float[B,4,4] x", result="(float[B,4,4] y)"), reason, "RMSNormalization")


@pytest.mark.parametrize("shared", ["mean", "r", "n"])
def test_rms_norm_shared_intermediates(shared: str) -> None:
    result = f"(float[B,S,4] y, float[?,?,?] {shared})"
    proto = rms(f"{ROOT} n = Div(x, r) y = Mul(n, w)", result=result)
    not_fused(proto, f"'{shared}' is used elsewhere", "RMSNormalization")


def rotary(body: str, *, x: str = "float[B,2,S,4] x", result: str = "(float[B,2,S,?] y)") -> onnx.ModelProto:
    return model(f"({x}, {TABLES}) => {result}", body, ROTARY)


@pytest.mark.parametrize(
    "tail",
    [
        "a = Mul(x, cos) b = Mul(s, sin) y = Add(a, b)",
        "a = Mul(cos, x) b = Mul(sin, s) y = Add(b, a)",
    ],
)
def test_rotary(tail: str) -> None:
    fused_once(rotary(f"{SWAP} {tail}"), "RotaryEmbedding", size=4, interleaved=0)


def test_partial_rotary() -> None:
    body = f"""x = Slice(w, zero, four, last, one) rest = Slice(w, four, end, last, one)
               {SWAP} a = Mul(x, cos) b = Mul(s, sin) t = Add(a, b) y = Concat<axis = -1>(t, rest)"""
    proto = rotary(body, x="float[B,2,S,7] w")
    fused_once(proto, "RotaryEmbedding", size=4)
    (node,) = private_nodes(canonicalize(load_model(proto)).model, "RotaryEmbedding")
    assert node.inputs[0].name == "w"


def test_rotary_of_a_part_that_goes_elsewhere() -> None:
    """What is left of the row is not the other part: only the turned part is fused."""
    body = f"""x = Slice(w, zero, four, last, one) rest = Slice(w, two, end, last, one)
               {SWAP} a = Mul(x, cos) b = Mul(s, sin) t = Add(a, b) y = Concat<axis = -1>(t, rest)"""
    fused_once(rotary(body, x="float[B,2,S,7] w"), "RotaryEmbedding", size=4, others=("Slice", "Slice", "Concat"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (SWAP.replace("Concat<axis = -1>", "Concat<axis = 2>"), "not joined along the last axis"),
        (SWAP.replace("x, zero, two", "x, one, two"), "does not swap the halves"),
        (SWAP.replace("last, one", "rows, one").replace("minus)", "rows)"), "does not swap the halves"),
    ],
)
def test_rotary_near_misses(body: str, reason: str) -> None:
    x = "float[B,2,4,4] x"
    tables = (
        "float[?,?,?,?] cos, float[?,?,?,?] sin"
        if "axis = 2" in body or "one, two" in body
        else "float[B,1,4,4] cos, float[B,1,4,4] sin"
    )
    proto = model(
        f"({x}, {tables}) => (float[?,?,?,?] y)", f"{body} a = Mul(x, cos) b = Mul(s, sin) y = Add(a, b)", ROTARY
    )
    not_fused(proto, reason, "RotaryEmbedding")


@pytest.mark.parametrize("shared", ["low", "s", "b"])
def test_rotary_shared_intermediates(shared: str) -> None:
    body = f"{SWAP} a = Mul(x, cos) b = Mul(s, sin) y = Add(a, b)"
    proto = rotary(body, result=f"(float[B,2,S,4] y, float[?,?,?,?] {shared})")
    not_fused(proto, f"'{shared}' is used elsewhere", "RotaryEmbedding")
