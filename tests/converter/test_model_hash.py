"""The identity of a graph."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import onnx
import pytest

from ortisan.converter.read.load import load_model
from ortisan.converter.read.model_hash import model_hash
from tests.models.text import text_model

SIGNATURE = "(float[N,4] x) => (float[?,?] y)"
BODY = "a = Add(x, w) b = Mul(a, s) c = Clip(b, low) y = Reshape<allowzero = 0>(c, shape)"


def _model(**changes: np.ndarray) -> onnx.ModelProto:
    constants = {
        "w": np.arange(4, dtype=np.float32),
        "s": np.float32(2),
        "low": np.float32(0),
        "shape": np.array([2, -1]),
    }
    return text_model(SIGNATURE, BODY, constants={**constants, **changes})


def _hash(model: onnx.ModelProto) -> str:
    return model_hash(load_model(model))


def test_weights_do_not_count() -> None:
    assert _hash(_model()) == _hash(_model(w=np.ones(4, np.float32)))


@pytest.mark.parametrize(
    "changed",
    [
        _model(s=np.float32(3)),
        _model(shape=np.array([4, -1])),
        _model(w=np.ones(4, np.float16)),
        _model(w=np.ones((1, 4), np.float32)),
    ],
    ids=["scalar", "shape", "weight dtype", "weight shape"],
)
def test_what_steers_the_code_counts(changed: onnx.ModelProto) -> None:
    assert _hash(changed) != _hash(_model())


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model.graph.node[0], "op_type", "Sub"),
        lambda model: setattr(model.graph.node[0], "name", "renamed"),
        lambda model: setattr(model.graph.node[3].attribute[0], "i", 1),
        lambda model: setattr(model.opset_import[0], "version", 18),
        lambda model: setattr(model.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "M"),
    ],
    ids=["op", "node name", "attribute", "opset", "input dim"],
)
def test_structure_counts(change: Callable[[onnx.ModelProto], None]) -> None:
    model = _model()
    change(model)
    assert _hash(model) != _hash(_model())


def test_the_same_in_every_process(tmp_path: object) -> None:
    path = f"{tmp_path}/model.onnx"
    onnx.save(_model(), path)
    code = f"from ortisan.converter.read.load import *; from ortisan.converter.read.model_hash import *; print(model_hash(load_model({path!r})))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == _hash(_model())
