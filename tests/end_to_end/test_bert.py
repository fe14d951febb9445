"""BERT in every form users bring: built for real, compared with stock ONNX Runtime on several shapes and masks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

import ortisan
from ortisan.models import BertSize, bert
from tests.models import bert as exported
from tests.models.text import run_ort
from tests.tolerances import LAYERS

FORMS = {
    "dynamo_sdpa": lambda: exported.bert_dynamo(),
    "dynamo_eager": lambda: exported.bert_dynamo(attention="eager"),
    "legacy_eager": lambda: exported.bert_legacy(),
    "legacy_sdpa": lambda: exported.bert_legacy(attention="sdpa"),
    "ort_transformers": lambda: exported.bert_ort_fused(by="transformers"),
    "ort_session": lambda: exported.bert_ort_fused(by="session"),
}
SIZES = [(1, 1), (2, 7), (3, 33), (1, 64)]


def masks(batch: int, seq: int) -> list[np.ndarray]:
    """All seen; right padding; left padding with a hole."""
    whole = np.ones((batch, seq), np.int64)
    right, left = whole.copy(), whole.copy()
    right[-1, seq - seq // 3 :] = 0
    left[0, : seq // 2] = 0
    left[-1, seq // 2 : seq // 2 + 1] = seq < 2
    return [whole, right, left]


@pytest.mark.build
@pytest.mark.torch
@pytest.mark.parametrize("form", FORMS)
def test_bert_builds_and_verifies(form: str, tmp_path: Path) -> None:
    model = FORMS[form]()
    artifact = ortisan.build(model, tmp_path / "bert", keep="all", verify=False)
    session = ortisan.load(artifact.folder)
    for batch, seq in SIZES:
        ids = np.random.default_rng(seq).integers(0, 100, (batch, seq))
        for mask in masks(batch, seq):
            feeds = {"input_ids": ids, "attention_mask": mask}
            feeds = {value.name: feeds[value.name].astype(_dtype(value)) for value in model.graph.input}
            for have, want in zip(session.run(None, feeds), run_ort(model, feeds), strict=True):
                np.testing.assert_allclose(have, want, atol=LAYERS, rtol=0)


def _dtype(value: onnx.ValueInfoProto) -> np.dtype:
    return onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)


@pytest.mark.torch
@pytest.mark.parametrize("form", FORMS)
def test_bert_becomes_one_op_with_fused_attention(form: str) -> None:
    compiled = ortisan.compile(FORMS[form](), target="reference")
    counts = Counter(compiled.op_counts())
    assert not compiled.left_out
    assert len(compiled.graphs) == 1
    assert counts["attention"] == 2
    assert counts["elementwise.gelu"] == 2
    assert counts["layernorm"] == 5
    assert not counts["softmax"]


@pytest.fixture(scope="module")
def small() -> onnx.ModelProto:
    import onnx_ir as ir

    return ir.to_proto(bert(BertSize(layers=2, hidden=64, heads=4, intermediate=96, vocabulary=50, positions=32)))


def layer_values(model: onnx.ModelProto) -> list[str]:
    """The value between embeddings and layer 0, and the outputs of the layers."""
    norms = [node for node in model.graph.node if node.op_type == "LayerNormalization"]
    return [norms[index].output[0] for index in (0, 2, 4)]


@pytest.mark.build
def test_one_encoder_layer_of_bert(small: onnx.ModelProto, tmp_path: Path) -> None:
    """`between` cuts out one layer; ONNX Runtime runs the rest."""
    embedded, first, _ = layer_values(small)
    artifact = ortisan.build(small, tmp_path / "layer", between=([embedded], [first]), keep="all", verify=False)
    converted = onnx.load(artifact.model)
    onnx.checker.check_model(converted)
    kinds = Counter(node.op_type for node in converted.graph.node)
    assert kinds[artifact.ops[0]] == 1
    assert kinds["Softmax"] == 1
    assert kinds["LayerNormalization"] == 3
    session = ortisan.load(artifact.folder)
    for batch, seq in ((1, 1), (3, 17)):
        ids = np.random.default_rng(0).integers(0, 50, (batch, seq))
        for mask in masks(batch, seq):
            feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            for have, want in zip(session.run(None, feeds), run_ort(small, feeds), strict=True):
                np.testing.assert_allclose(have, want, atol=LAYERS, rtol=0)


@pytest.mark.build
def test_outside_the_trained_positions_is_an_error(small: onnx.ModelProto, tmp_path: Path) -> None:
    artifact = ortisan.build(small, tmp_path / "bert", keep="all", verify=False)
    ids = np.zeros((1, 33), np.int64)
    with pytest.raises(Exception, match="33"):
        ortisan.load(artifact.folder).run(None, {"input_ids": ids, "attention_mask": ids, "token_type_ids": ids})
    bad = np.full((1, 3), 50)
    with pytest.raises(Exception, match="index is outside the range"):
        ortisan.load(artifact.folder).run(None, {"input_ids": bad, "attention_mask": bad, "token_type_ids": bad * 0})
