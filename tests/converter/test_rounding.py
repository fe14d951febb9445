"""Which outputs went through a coarser float type than their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ortisan
from ortisan.pipeline.check import verify
from ortisan.pipeline.manifest import rounded_floats
from tests.models.text import text_model

HALF = "h = Cast <to = 10> (x) p = MatMul(h, w) s = Softmax(p) y = Cast <to = 1> (s)"
WEIGHTS = {"w": np.random.default_rng(0).normal(size=(64, 64), scale=0.1).astype(np.float16)}


def rounded(signature: str, body: str) -> dict[str, str]:
    compiled = ortisan.compile(text_model(signature, body), target="reference")
    return {name: dtype.value for name, dtype in rounded_floats(compiled).items()}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = Exp(x) y = Relu(a) z = Cast <to = 11> (a)", {"z": "float32"}),
        ("h = Cast <to = 10> (x) a = Exp(h) y = Cast <to = 1> (a) z = Cast <to = 11> (x)", {"y": "float16"}),
        ("h = Cast <to = 10> (x) a = Exp(h) b = Cast <to = 1> (a) y = Neg(b) z = Cast <to = 11> (b)", {"y": "float16", "z": "float16"}),
        ("h = Cast <to = 16> (x) a = Cast <to = 10> (h) y = Cast <to = 1> (a) z = Cast <to = 11> (x)", {"y": "bfloat16"}),
        ("c = Constant <value = float16[1] {15360}> () d = Cast <to = 1> (c) y = Add(x, d) z = Cast <to = 11> (x)", {}),
    ],
)  # fmt: skip
def test_the_coarsest_type_on_the_way(body: str, expected: dict[str, str]) -> None:
    assert rounded("(float[n] x) => (float[n] y, double[n] z)", body) == expected


def test_the_branches_of_a_condition_are_on_the_way() -> None:
    half = "h = Cast <to = 10> (x) a = Cast <to = 1> (h)"
    body = f"e = Exp(x) y = If (c) <then_branch = g () => (float[n] a) {{{half}}}, else_branch = g () => (float[n] b) {{b = Neg(e)}}>"
    assert rounded("(float[n] x, bool c) => (float[n] y)", body) == {"y": "float16"}


def test_half_inputs_are_exact() -> None:
    assert rounded("(float16[n] x) => (float[n] y)", "a = Cast <to = 1> (x) y = Exp(a)") == {}


@pytest.mark.build
def test_a_half_model_with_float_inputs_and_outputs_is_compared_as_what_it_is(tmp_path: Path) -> None:
    model = text_model("(float[n,64] x) => (float[n,64] y)", HALF, constants=WEIGHTS)
    artifact = ortisan.build(model, tmp_path / "out", keep="all", tune="off")
    assert artifact.manifest["rounded"] == {"y": "float16"}
    assert verify(artifact.folder, model=model).verification.passed
