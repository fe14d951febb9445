"""Batch and heads merged into one dim around attention, taken apart again."""

from __future__ import annotations

import numpy as np
import pytest

from ortisan.converter.passes.canonical import canonicalize
from ortisan.converter.read.load import load_model
from tests.models.private_ops import check_private_ops, private_nodes
from tests.models.text import random_feeds, run_ort, text_model
from tests.tolerances import APPROXIMATE, SAME

CONSTANTS = {
    "flat": np.array([-1, 5, 4]), "full": np.array([-1, 2, 5, 4]), "scores": np.array([-1, 2, 5, 5]), "weights": np.array([-1, 5, 5]),
    "c": np.float32(0.3), "other": np.array([2, -1, 5, 5]),
}  # fmt: skip
INPUTS = "float[B,2,5,4] q, float[B,2,5,4] k, float[B,2,5,4] v"
MERGED = "q3 = Reshape(q, flat) k3 = Reshape(k, flat) v3 = Reshape(v, flat) kt = Transpose<perm = [0, 2, 1]>(k3)"
TAIL = "o3 = MatMul(p, v3) y = Reshape(o3, full)"


def check(body: str, inputs: str = INPUTS, *, attentions: int = 1) -> None:
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    constants = {name: value for name, value in CONSTANTS.items() if name in words}
    proto = text_model(f"({inputs}) => (float[?,?,?,?] y)", body, constants=constants)
    canonical = canonicalize(load_model(proto))
    assert len(private_nodes(canonical.model, "Attention")) == attentions
    feeds = random_feeds(proto, B=3, M=1)
    actual = check_private_ops(canonical, feeds)[0]
    np.testing.assert_allclose(actual, run_ort(proto, feeds)[0], rtol=APPROXIMATE, atol=SAME)


@pytest.mark.parametrize(
    "middle",
    [
        "s = MatMul(q3, kt) p = Softmax<axis = -1>(s)",
        "s0 = MatMul(q3, kt) s = Mul(s0, c) p = Softmax<axis = 2>(s)",
        "s = MatMul(q3, kt) s4 = Reshape(s, scores) p4 = Softmax<axis = -1>(s4) p = Reshape(p4, weights)",
        "ks = Div(kt, c) s = MatMul(q3, ks) w = Cast<to = 1>(s) p = Softmax<axis = -1>(w)",
    ],
)
def test_attention_in_three_dims(middle: str) -> None:
    check(f"{MERGED} {middle} {TAIL}")


BIASED = f"{MERGED} s0 = MatMul(q3, kt) s = Add(s0, b) p = Softmax<axis = -1>(s) {TAIL}"


@pytest.mark.parametrize("bias", ["float[6,1,5] b", "float[6,5,5] b", "float[5,5] b", "float[1,5,5] b"])
def test_a_bias_in_three_dims(bias: str) -> None:
    check(BIASED, f"{INPUTS}, {bias}".replace("B", "3"))


def test_a_bias_of_which_only_run_time_tells_whether_it_is_for_all() -> None:
    body = BIASED.replace("Add(s0, b)", "Add(s0, bb)").replace("s0 =", "d = Shape(b) bb = Expand(b, d) s0 =")
    check(body, f"{INPUTS}, float[M,1,5] b".replace("B", "3"), attentions=0)


def test_a_reshape_to_other_heads_stays() -> None:
    body = f"{MERGED} s = MatMul(q3, kt) s4 = Reshape(s, other) p4 = Softmax<axis = -1>(s4) p = Reshape(p4, weights) {TAIL}"
    check(body, attentions=0)
