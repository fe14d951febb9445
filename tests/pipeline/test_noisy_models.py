"""Models that move more than the tolerance by themselves: they pass, and real errors of any size are still found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import ortisan
from tests.models.text import text_model
from tests.pipeline import faults

pytestmark = pytest.mark.build

RNG = np.random.default_rng(0)
LARGE = 2.0e4
"""Times this, an ulp of a number near 1 is above the tolerance."""


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def sawtooth() -> onnx.ModelProto:
    """What is left of large numbers behind the point: the last bits of a function decide it."""
    body = (
        "a = MatMul(x, w) e = Erf(a) t = Tanh(a) g = Exp(t) h = Add(e, g) b = Mul(h, many) r = Round(b) y = Sub(b, r)"
    )
    constants = {"w": weights(64, 64), "many": np.float32(LARGE)}
    return text_model("(float[batch,64] x) => (float[batch,64] y)", body, constants=constants)


def half() -> onnx.ModelProto:
    """A float32 part, a long way in float16, a float32 part."""
    body = """a = MatMul(x, w) b = Tanh(a) c = Cast<to = 10>(b) d = Mul(c, c) e = Sub(d, c) f = ReduceSum<keepdims = 0>(e, last)
        g = Exp(e) h = Cast<to = 1>(g) i = MatMul(h, v) y = Sigmoid(i)"""
    constants = {"w": weights(32, 48), "v": weights(48, 8), "last": np.array([1])}
    return text_model("(float[batch,32] x) => (float[batch,8] y)", body, constants=constants)


def quantizers() -> onnx.ModelProto:
    body = """a = MatMul(x, w) q = QuantizeLinear(a, s, z) d = DequantizeLinear(q, s, z) b = MatMul(d, v)
        r = QuantizeLinear(b, s, z) y = DequantizeLinear(r, s, z)"""
    constants = {"w": weights(32, 48), "v": weights(48, 8), "s": np.float32(0.02), "z": np.array(128, np.uint8)}
    return text_model("(float[batch,32] x) => (float[batch,8] y)", body, constants=constants)


def choices() -> onnx.ModelProto:
    """Which of the largest is an index, and an ulp may decide it."""
    body = "a = MatMul(x, w) b = Mul(a, many) c = Round(b) i = ArgMax<axis = 1, keepdims = 0>(c) g = Gather(table, i) y = Exp(g)"
    constants = {"w": weights(32, 48), "many": np.float32(10), "table": weights(48, 8)}
    return text_model("(float[batch,32] x) => (float[batch,8] y)", body, constants=constants)


NOISY = {
    "float16": (half, ["Cast", "Sub", "Exp"]),
    "quantizers": (quantizers, []),
    "argmax": (choices, ["Round", "ArgMax"]),
    "sawtooth": (sawtooth, ["Mul"]),
}
"""What makes a model, and the noisy ops that stay in ONNX Runtime, so that the first subgraph ends before them."""


def test_a_noisy_model_passes_and_the_manifest_says_why(tmp_path: Path) -> None:
    artifact = ortisan.build(sawtooth(), tmp_path / "out", keep="all", tune="off", quick=True, name="net")
    assert artifact.ops == ("net_0",)
    assert artifact.manifest["departures"] == []
    (figure,) = artifact.manifest["verification"]["figures"]
    assert figure["passed"]
    assert figure["noise"]["max_rel"] > 0
    assert figure["noise"]["off"] > 0


def check_caught(name: str, size: float, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, left = NOISY[name]
    faults.inject(monkeypatch, {0: faults.scaled(1 + size)})
    artifact = ortisan.build(make(), folder, keep="all", tune="off", quick=True, name="net", exclude=left or None)
    assert [each["op"] for each in artifact.manifest["departures"]] == ["net_0"]
    assert "net_0" not in artifact.ops


def test_a_small_error_does_not_hide_behind_quantizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_caught("quantizers", 1e-3, tmp_path / "out", monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("name", NOISY)
def test_errors_are_found(name: str, size: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_caught(name, size, tmp_path / "out", monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-1, 3e-2])
def test_errors_inside_float16_are_found(size: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those above what float16 itself can tell apart."""
    body = "a = MatMul(x, w) b = Relu(a) y = Mul(b, b)"
    model = text_model(
        "(float16[batch,16] x) => (float16[batch,8] y)", body, constants={"w": weights(16, 8).astype(np.float16)}
    )
    faults.inject(monkeypatch, {0: faults.scaled(1 + size)})
    artifact = ortisan.build(model, tmp_path / "out", keep="all", tune="off", quick=True, name="net")
    assert [each["op"] for each in artifact.manifest["departures"]] == ["net_0"]
