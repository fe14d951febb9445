"""Contrib ops mean the same after they were unfused: compared with ORT's own kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from ortisan.converter.fuse import expand_private
from ortisan.converter.passes.canonical import Canonical, canonicalize
from ortisan.converter.passes.origin import origins
from ortisan.converter.read.load import load_model
from tests.models.text import Array, random_feeds, run_ort, text_model
from tests.tolerances import CLOSE, NOTHING_SEEN

F32 = np.float32
RNG = np.random.default_rng(1)
H = 8

X = "float[B,S,8] x"
WEIGHTS = {
    "scale": RNG.uniform(0.5, 1.5, H).astype(F32),
    "beta": RNG.normal(size=H).astype(F32),
    "bias": RNG.normal(size=H).astype(F32),
    "words": RNG.normal(size=(10, H)).astype(F32),
    "positions": RNG.normal(size=(12, H)).astype(F32),
    "segments": RNG.normal(size=(2, H)).astype(F32),
    "qkv": RNG.normal(size=(H, 3 * H)).astype(F32) * F32(0.5),
    "qkv_bias": RNG.normal(size=3 * H).astype(F32),
    "wide": RNG.normal(size=(H, 8 + 8 + 12)).astype(F32) * F32(0.5),
    "wide_bias": RNG.normal(size=28).astype(F32),
    "matrix": RNG.normal(size=(4, H)).astype(F32),
}


def model(signature: str, body: str, opset: int = 17) -> onnx.ModelProto:
    words = set(re.findall(r"\w+", body))
    used = {name: array for name, array in WEIGHTS.items() if name in words}
    return text_model(signature, f"[node] {body}", opset=opset, constants=used)


def unfused(proto: onnx.ModelProto, feeds: Mapping[str, Array] | None = None, tolerance: float = CLOSE) -> Canonical:
    """Canonicalizes; no contrib node is left, and ORT gives the same for both models."""
    feeds = feeds if feeds is not None else random_feeds(proto, B=2, S=4)
    canonical = canonicalize(load_model(proto))
    expanded = canonical.model.clone()
    expand_private(expanded)
    assert {node.domain for node in expanded.graph} == {""}
    assert "com.microsoft" not in expanded.opset_imports
    assert all(origins(node) for node in expanded.graph)
    for a, b in zip(run_ort(proto, feeds), run_ort(ir.to_proto(expanded), feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    return canonical


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 20])
@pytest.mark.parametrize(
    ("signature", "body"),
    [
        (
            f"({X}, float[B,S,8] skip) => (float[B,S,8] y)",
            "y = com.microsoft.SkipLayerNormalization(x, skip, scale, beta)",
        ),
        (f"({X}, float[B,S,8] skip) => (float[B,S,8] y)", "y = com.microsoft.SkipLayerNormalization(x, skip, scale)"),
        (
            f"({X}, float[S,8] skip) => (float[B,S,8] y, float[B,S,8] t)",
            "y, u, v, t = com.microsoft.SkipLayerNormalization<epsilon = 0.01>(x, skip, scale, beta, bias)",
        ),
        (f"({X}) => (float[B,S,8] y)", "y = com.microsoft.Gelu(x)"),
        (f"({X}) => (float[B,S,8] y)", "y = com.microsoft.BiasGelu(x, bias)"),
        (f"({X}) => (float[B,S,8] y)", "y = com.microsoft.FastGelu(x)"),
        (f"({X}) => (float[B,S,8] y)", "y = com.microsoft.FastGelu(x, bias)"),
        (
            "(int32[B,S] ids) => (float[B,S,8] y)",
            "y, m = com.microsoft.EmbedLayerNormalization(ids, , words, positions, , scale, beta)",
        ),
        (
            "(int32[B,S] ids, int32[1,S] pos) => (float[B,S,8] y, int32[B] m, float[B,S,8] t)",
            "y, m, t = com.microsoft.EmbedLayerNormalization(ids, , words, positions, , scale, beta, , pos)",
        ),
        (
            "(int32[B,S] ids, int32[B,S] seg, int32[B,S] mask) => (float[B,S,8] y, int32[B] m)",
            "y, m = com.microsoft.EmbedLayerNormalization(ids, seg, words, positions, segments, scale, beta, mask)",
        ),
        (
            "(int32[B,S] ids, int32[B,S] seg, int32[B,S] mask, int32[B,S] pos)"
            " => (float[B,S,8] y, int32[B] m, float[B,S,8] t)",
            "y, m, t = com.microsoft.EmbedLayerNormalization<mask_index_type = 1>"
            "(ids, seg, words, positions, segments, scale, beta, mask, pos)",
        ),
    ],
)
def test_norms_and_gelus(signature: str, body: str, opset: int) -> None:
    unfused(model(signature, body, opset))


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize(
    "attributes", ["", "<alpha = 0.25>", "<transA = 1, alpha = 2.0>", "<transB = 1>", "<transA = 1, transB = 1>"]
)
def test_fused_matmul(attributes: str, opset: int) -> None:
    a = "float[B,3,S]" if "transA" in attributes else "float[B,S,3]"
    b = "float[B,5,3]" if "transB" in attributes else "float[B,3,5]"
    unfused(model(f"({a} a, {b} b) => (float[B,S,5] y)", f"y = com.microsoft.FusedMatMul{attributes}(a, b)", opset))


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "Sigmoid"])
def test_fused_gemm(activation: str) -> None:
    body = f'y = com.microsoft.FusedGemm<activation = "{activation}", transB = 1, alpha = 0.5>(x, matrix)'
    unfused(model("(float[B,8] x) => (float[B,4] y)", body))


MASKS = {
    "lengths": ("int32[B] m", np.array([3, 1], np.int32)),
    "padding": ("int32[B,S] m", np.array([[1, 1, 1, 0], [0, 1, 1, 1]], np.int32)),
    "matrix": ("int32[B,S,S] m", RNG.integers(0, 2, (2, 4, 4)).astype(np.int32)),
    "all hidden": ("int32[B,S] m", np.array([[1, 1, 1, 1], [0, 0, 0, 0]], np.int32)),
}


@pytest.mark.parametrize("opset", [11, 13, 17])
@pytest.mark.parametrize(
    "attributes", ["num_heads = 2", "num_heads = 4, scale = 0.3", "num_heads = 2, unidirectional = 1"]
)
@pytest.mark.parametrize("mask", [None, *MASKS])
def test_attention(mask: str | None, attributes: str, opset: int) -> None:
    """A row that sees nothing has logits near -10000, where float32 has steps of 0.001."""
    declared, value = MASKS[mask] if mask else ("", None)
    signature = f"({X}{', ' + declared if mask else ''}) => (float[B,S,8] y)"
    proto = model(
        signature, f"y = com.microsoft.Attention<{attributes}>(x, qkv, qkv_bias, {'m' if mask else ''})", opset
    )
    feeds = {"x": RNG.normal(size=(2, 4, 8)).astype(F32)} | ({"m": value} if mask else {})
    sees_nothing = mask in ("all hidden", "matrix") or (mask == "padding" and "unidirectional" in attributes)
    canonical = unfused(proto, feeds, NOTHING_SEEN if sees_nothing else CLOSE)
    assert canonical.counts["fuse Attention"] == 1


def test_attention_with_other_sizes_bias_and_filter() -> None:
    signature = f"({X}, int32[B,S] m, float[1,2,S,S] extra) => (float[B,S,12] y)"
    attributes = "num_heads = 2, qkv_hidden_sizes = [8, 8, 12], mask_filter_value = -3.0"
    canonical = unfused(model(signature, f"y = com.microsoft.Attention<{attributes}>(x, wide, wide_bias, m, , extra)"))
    assert canonical.counts["unfuse Attention"] == 1
    assert canonical.counts["fuse Attention"] == 1


@pytest.mark.parametrize(
    ("signature", "body", "reason"),
    [
        (
            "(float[B,S,3] a, float[B,3,5] b) => (float[?,?,?] y)",
            "y = com.microsoft.FusedMatMul<transBatchA = 1>(a, b)",
            "transBatchA and transBatchB are not supported",
        ),
        (
            f"({X}, float[B,S,8] skip) => (float[B,S,8] y, float[?,?,?] mean)",
            "y, mean = com.microsoft.SkipLayerNormalization(x, skip, scale)",
            "its mean or inverse deviation output is used",
        ),
    ],
)
def test_what_stays_says_why(signature: str, body: str, reason: str) -> None:
    proto = model(signature, body)
    before = {tensor.name for tensor in proto.graph.initializer}
    canonical = canonicalize(load_model(proto))
    assert [node.domain for node in canonical.model.graph] == ["com.microsoft"]
    assert set(canonical.model.graph.initializers) == before
    (miss,) = canonical.near_misses
    assert miss.node == "node"
    assert reason in miss.reason


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        (
            f"({X}, float[2,B,2,P,4] past) => (float[B,S,8] y, float[2,B,2,?,4] now)",
            "y, now = com.microsoft.Attention<num_heads = 2>(x, qkv, qkv_bias, , past)",
        ),
        (
            f"({X}, float[8,24] qkv_in) => (float[B,S,8] y)",
            "y = com.microsoft.Attention<num_heads = 2>(x, qkv_in, qkv_bias)",
        ),
        (f"({X}) => (float[B,S,8] y)", "y = com.microsoft.Attention<num_heads = 3>(x, qkv, qkv_bias)"),
        (
            f"({X}, int32[M] m) => (float[B,S,8] y)",
            "y = com.microsoft.Attention<num_heads = 2>(x, qkv, qkv_bias, m)",
        ),
    ],
)
def test_attentions_that_are_lowered_as_they_are(signature: str, body: str) -> None:
    """Whether they can be compiled is not asked here."""
    proto = model(signature, body)
    before = {tensor.name for tensor in proto.graph.initializer}
    canonical = canonicalize(load_model(proto))
    assert [node.domain for node in canonical.model.graph] == ["com.microsoft"]
    assert set(canonical.model.graph.initializers) == before
    assert canonical.near_misses == ()


def test_an_excluded_node_stays() -> None:
    canonical = canonicalize(
        load_model(model(f"({X}) => (float[B,S,8] y)", "y = com.microsoft.Gelu(x)")),
        frozen=lambda node: node.name == "node",
    )
    assert [(miss.pattern, miss.reason) for miss in canonical.near_misses] == [("unfuse Gelu", "excluded")]


def test_an_op_that_is_not_unfused_leaves_no_reader_behind() -> None:
    """The type of 'a' is not known, which shows after the first of the new nodes is made."""
    body = "a = custom.Thing(x) y = com.microsoft.FastGelu(a, b) z = Exp(x)"
    proto = model("(float[n,4] x) => (float[n,4] y, float[n,4] z)", body)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.float32), "b"))
    result = canonicalize(load_model(proto))
    graph = result.model.graph
    inside = set(graph)
    assert all(use.node in inside for node in graph for value in node.outputs for use in value.uses())
    assert "the type of" in next(miss.reason for miss in result.near_misses if miss.pattern == "unfuse FastGelu")
