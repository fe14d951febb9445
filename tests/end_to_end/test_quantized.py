"""Quantized models build with everything kept and are right; a wrong scale in one of their subgraphs is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import ortisan
from tests.models.quantized import dynamic, pairs, small_bert, small_resnet
from tests.models.sessions import open_session
from tests.models.text import random_feeds
from tests.pipeline import faults

pytestmark = pytest.mark.build

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "bert dynamic": lambda: dynamic(small_bert()),
    "bert pairs": lambda: pairs(small_bert()),
    "resnet pairs": lambda: pairs(small_resnet()),
}
SPOILED = {"bert dynamic": 3, "bert pairs": 5, "resnet pairs": 3}
"""The subgraph that gets a wrong scale: one with a product, or what follows a product of integers."""


def build(model: onnx.ModelProto, folder: Path) -> ortisan.Artifact:
    return ortisan.build(model, folder, keep="all", tune="off", name="net")


def is_right(artifact: ortisan.Artifact, model: onnx.ModelProto) -> bool:
    """Within a step or two of the coarsest quantizer: a scale that is off by 1 % moves everything further."""
    feeds = random_feeds(model, seed=5, batch=2, sequence=7)
    ours, theirs = ortisan.load(artifact.folder).run(None, feeds), open_session(model, plain=True).run(None, feeds)
    return all(np.abs(a - b).mean() <= 2e-3 * np.abs(b).mean() for a, b in zip(ours, theirs, strict=True))


def check_right(name: str, folder: Path) -> None:
    model = MODELS[name]()
    artifact = build(model, folder)
    assert artifact.manifest["departures"] == []
    assert artifact.manifest["verification"]["passed"]
    assert len(artifact.ops) > SPOILED[name]
    assert is_right(artifact, model)


def check_caught(name: str, factor: float, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name]()
    faults.inject(monkeypatch, {SPOILED[name]: faults.scaled(factor)})
    artifact = build(model, folder)
    (left,) = artifact.manifest["departures"]
    assert left["op"] == f"net_{SPOILED[name]}"
    assert "departs from ONNX Runtime" in left["reason"]
    assert left["op"] not in artifact.ops
    assert is_right(artifact, model)


def test_a_dynamically_quantized_bert_is_right(tmp_path: Path) -> None:
    check_right("bert dynamic", tmp_path / "out")


def test_a_scale_that_is_one_percent_off_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_caught("resnet pairs", 1.01, tmp_path / "out", monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert pairs", "resnet pairs"])
def test_models_of_pairs_are_right(name: str, tmp_path: Path) -> None:
    check_right(name, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.01, 2.0])
@pytest.mark.parametrize("name", MODELS)
def test_wrong_scales_are_found(name: str, factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_caught(name, factor, tmp_path / "out", monkeypatch)
