"""A small model and its artifact, built once; tests that change an artifact take a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import ortisan
from tests.models.text import text_model


def two_layers() -> onnx.ModelProto:
    """Two dense layers with a Softmax between them: excluded, it cuts the model into two subgraphs."""
    rng = np.random.default_rng(0)
    constants = {
        "w0": rng.normal(size=(16, 40)).astype(np.float32) / 4,
        "b0": rng.normal(size=40).astype(np.float32),
        "w1": rng.normal(size=(40, 8)).astype(np.float32) / 6,
    }
    body = "a = MatMul(x, w0) c = Add(a, b0) d = Relu(c) s = Softmax(d) y = MatMul(s, w1)"
    return text_model("(float[batch,seq,16] x) => (float[batch,seq,8] y)", body, constants=constants)


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "layers.onnx"
    onnx.save(two_layers(), path)
    return path


@pytest.fixture(scope="session")
def built(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> ortisan.Artifact:
    """The artifact; not to be changed."""
    return ortisan.build(model_file, tmp_path_factory.mktemp("artifact") / "layers", keep="all")


@pytest.fixture
def folder(built: ortisan.Artifact, tmp_path: Path) -> Path:
    """A copy of the artifact's folder."""
    return Path(shutil.copytree(built.folder, tmp_path / "layers"))


@pytest.fixture
def x() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(size=(2, 3, 16)).astype(np.float32)}
