"""Inputs that have a default value: left open for a caller to override, or frozen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import ortisan
from ortisan.cli.app import app
from ortisan.errors import OrtisanError
from tests.models.text import text_model
from tests.tolerances import CLOSE

RNG = np.random.default_rng(0)
BODY = "a = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w, b) y = Relu(a)"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A convolution whose filters can be overridden."""
    weights = {"w": RNG.standard_normal((5, 3, 3, 3)).astype(np.float32), "b": np.ones(5, np.float32)}
    signature = "(float[n,3,8,8] x, float[5,3,3,3] w, float[5] b) => (float[n,5,8,8] y)"
    path = tmp_path / "conv.onnx"
    onnx.save(text_model(signature, BODY, constants=weights), path)
    return path


@pytest.mark.build
def test_frozen_inputs_are_weights_and_no_inputs(model: Path, tmp_path: Path) -> None:
    artifact = ortisan.build(model, tmp_path / "out", freeze_inputs=True, keep="all")
    assert artifact.manifest["flops_share"] == 1
    assert artifact.manifest["overridable_inputs"] == 0
    session = ortisan.load(artifact.folder)
    assert [value.name for value in session.get_inputs()] == ["x"]
    assert not session.get_overridable_initializers()
    x = RNG.standard_normal((2, 3, 8, 8)).astype(np.float32)
    stock = ortisan.load(ortisan.build(model, tmp_path / "stock", exclude=["Conv", "Relu"]).folder)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], stock.run(None, {"x": x})[0], atol=CLOSE, rtol=CLOSE)
    assert ortisan.verify(artifact.folder).verification.passed


@pytest.mark.build
def test_a_frozen_model_of_which_nothing_is_compiled_is_frozen_too(model: Path, tmp_path: Path) -> None:
    artifact = ortisan.build(model, tmp_path / "out", freeze_inputs=True, exclude=["Conv", "Relu"])
    assert not artifact.ops
    assert [value.name for value in onnx.load(artifact.model).graph.input] == ["x"]


@pytest.mark.build
def test_an_input_that_is_not_frozen_can_be_overridden(model: Path, tmp_path: Path) -> None:
    session = ortisan.load(ortisan.build(model, tmp_path / "out", keep="all").folder)
    assert [value.name for value in session.get_overridable_initializers()] == ["w", "b"]
    x, zeros = np.ones((1, 3, 8, 8), np.float32), np.zeros((5, 3, 3, 3), np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x, "w": zeros})[0], np.ones((1, 5, 8, 8)))


@pytest.mark.build
def test_the_size_of_a_default_has_nothing_to_do_with_the_sizes_of_other_inputs(tmp_path: Path) -> None:
    """Its declared dims say n, and ONNX Runtime runs any n with it."""
    weights = {"w": RNG.standard_normal((6, 10)).astype(np.float32)}
    path = tmp_path / "product.onnx"
    onnx.save(
        text_model("(float[n,6] x, float[6,n] w) => (float[n,10] y)", "y = MatMul(x, w)", constants=weights), path
    )
    session = ortisan.load(ortisan.build(path, tmp_path / "out", keep="all", strict=True).folder)
    x = RNG.standard_normal((3, 6)).astype(np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weights["w"], atol=CLOSE, rtol=CLOSE)


def test_the_command_line_says_what_would_help(model: Path) -> None:
    said = " ".join(CliRunner().invoke(app, ["inspect", str(model)]).output.split())
    assert "2 inputs have default values and can't be packed or folded; --freeze-inputs makes constants of" in said
    assert "default value" not in CliRunner().invoke(app, ["inspect", str(model), "--freeze-inputs"]).output


def test_frozen_inputs_belong_to_the_identity_of_the_model(model: Path) -> None:
    compiled = ortisan.compile(model, freeze_inputs=True)
    assert [value.name for value in ortisan.convert_graph(model, compiled).graph.input] == ["x"]
    other = ortisan.compile(model)
    assert other.model_hash != compiled.model_hash
    with pytest.raises(OrtisanError):
        ortisan.convert_graph(text_model("(float[n] x) => (float[n] y)", "y = Relu(x)"), compiled)
