"""The demo's model, and the demo."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from typer.testing import CliRunner

import ortisan
from ortisan.cli import demo as demos
from ortisan.cli.app import app
from ortisan.models import BertSize, bert

TINY = BertSize(layers=1, hidden=32, heads=2, intermediate=64, vocabulary=50, positions=16)


def feeds(batch: int, sequence: int) -> dict[str, np.ndarray]:
    ids = np.arange(batch * sequence).reshape(batch, sequence) % 50
    mask = np.ones_like(ids)
    mask[-1, sequence // 2 + 1 :] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2}


def test_the_model_is_valid_and_of_order_1() -> None:
    proto = ir.to_proto(bert(TINY))
    onnx.checker.check_model(proto, full_check=True)
    session = ort.InferenceSession(proto.SerializeToString())
    states, pooled = session.run(None, feeds(2, 7))
    assert (states.shape, pooled.shape) == ((2, 7, 32), (2, 32))
    assert 0.5 < states.std() < 2


def test_the_mask_hides_keys() -> None:
    session = ort.InferenceSession(ir.to_proto(bert(TINY)).SerializeToString())
    given = feeds(1, 8)
    other = {**given, "input_ids": np.where(given["attention_mask"] == 1, given["input_ids"], 49)}
    seen = given["attention_mask"][0] == 1
    np.testing.assert_array_equal(session.run(None, given)[0][0, seen], session.run(None, other)[0][0, seen])


def test_the_default_size_is_bert_base() -> None:
    size = BertSize()
    layer = 4 * size.hidden**2 + 2 * size.hidden * size.intermediate
    tables = (size.vocabulary + size.positions + size.token_types) * size.hidden
    assert (size.layers * layer + tables) // 10**6 == 108


def test_the_seed_makes_the_weights() -> None:
    weights = [ir.to_proto(bert(TINY, seed=seed)).SerializeToString() for seed in (0, 0, 1)]
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.build
def test_the_small_demo(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--small", "-o", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.stderr
    shown = json.loads(result.stdout)
    assert shown["flops_share"] > demos.MIN_SHARE
    assert shown["max_abs"] <= demos.MAX_ABS
    assert shown["bench"][0]["threads"] == 1
    assert len({figure["case"] for figure in shown["verification"]["figures"]}) == 9
    assert ortisan.load(tmp_path / "bert").get_outputs()[0].name == "last_hidden_state"


@pytest.mark.build
def test_the_demo_keeps_its_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demos, "MAX_ABS", 1e-12)
    result = CliRunner().invoke(app, ["demo", "--small", "-o", str(tmp_path)])
    assert result.exit_code == 1
    assert "the demo's largest error is" in result.stderr
