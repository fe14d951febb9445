"""BERT as both of torch's exporters and ORT's two optimizers write it: one canonical form, one meaning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from ortisan.converter.passes.canonical import Canonical, canonicalize
from ortisan.converter.read.load import load_model
from tests.models.bert import bert_dynamo, bert_feeds, bert_legacy, bert_ort_fused
from tests.models.private_ops import check_private_ops, private_nodes
from tests.models.text import run_ort
from tests.tolerances import APPROXIMATE, HALF, HALF_SOFTMAX

pytestmark = pytest.mark.torch

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

LAYERS = 2
FORMS: dict[str, Callable[[], onnx.ModelProto]] = {
    "dynamo sdpa": bert_dynamo,
    "dynamo eager opset 18": lambda: bert_dynamo(attention="eager", opset=18),
    "legacy eager": bert_legacy,
    "legacy eager opset 12": lambda: bert_legacy(opset=12),
    "legacy sdpa": lambda: bert_legacy(attention="sdpa"),
    "fused by transformers": bert_ort_fused,
    "fused by session": lambda: bert_ort_fused(by="session"),
    "fused by session opset 12": lambda: bert_ort_fused(by="session", opset=12),
}


@pytest.fixture(params=FORMS)
def bert(request: pytest.FixtureRequest) -> onnx.ModelProto:
    return FORMS[request.param]()


def _total(canonical: Canonical, op_type: str) -> int:
    return sum(node.op_type == op_type and node.domain in ("", "ortisan") for node in canonical.model.graph)


def test_every_form_has_the_same_big_ops(bert: onnx.ModelProto) -> None:
    canonical = canonicalize(load_model(bert))
    assert len(private_nodes(canonical.model, "Attention")) == LAYERS
    assert _total(canonical, "LayerNormalization") == 2 * LAYERS + 1
    assert _total(canonical, "Gelu") == LAYERS
    assert _total(canonical, "MatMul") == 6 * LAYERS
    assert not {node.domain for node in canonical.model.graph} - {"", "ortisan"}
    assert canonical.near_misses == ()


def test_shapes_are_known_throughout(bert: onnx.ModelProto) -> None:
    graph = canonicalize(load_model(bert)).model.graph
    assert [list(value.shape) for value in graph.outputs] == [["batch", "seq", 64], ["batch", 64]]
    for node in graph:
        for value in node.outputs:
            assert value.shape is not None, node
            symbols = {name for dim in value.shape if isinstance(dim, ir.SymbolicDim) for name in dim.free_symbols()}
            assert symbols <= {"batch", "seq"}, node


@pytest.mark.parametrize(("batch", "seq", "padding"), [(2, 7, 0), (2, 7, 3), (1, 1, 0), (3, 16, 15)])
def test_the_meaning_stays(bert: onnx.ModelProto, batch: int, seq: int, padding: int) -> None:
    feeds = bert_feeds(batch=batch, seq=seq, padding=padding)
    outputs = check_private_ops(canonicalize(load_model(bert)), feeds)
    for actual, expected in zip(outputs, run_ort(bert, feeds), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=APPROXIMATE, atol=APPROXIMATE)


def test_rows_that_see_nothing(bert: onnx.ModelProto) -> None:
    """Each form has its own meaning for a fully padded row; near -10000 float32 has steps of 0.001."""
    feeds = bert_feeds()
    feeds["attention_mask"][1] = 0
    outputs = check_private_ops(canonicalize(load_model(bert)), feeds, tolerance=HALF)
    for actual, expected in zip(outputs, run_ort(bert, feeds), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=HALF_SOFTMAX)


def test_fixed_dims_leave_no_symbols(bert: onnx.ModelProto) -> None:
    graph = canonicalize(load_model(bert), dims={"batch": 1, "seq": 8}).model.graph
    assert all(value.shape is not None and value.shape.is_static() for node in graph for value in node.outputs)
    counts = Counter(node.op_type for node in graph)
    assert not {"Shape", "Range", "ConstantOfShape"} & set(counts)
