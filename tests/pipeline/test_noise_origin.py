"""A noisy model is judged by its own noise, and the report names the node that makes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ortisan
from tests.models.text import text_model

pytestmark = pytest.mark.build


def test_a_steep_function_is_noisy(tmp_path: Path) -> None:
    """Differences near zero are blown up far beyond the tolerance, by ONNX Runtime itself too."""
    rng = np.random.default_rng(4)
    weights = rng.standard_normal((256, 32)).astype(np.float32)
    body = "a = MatMul(x, w) b = Mul(a, steep) y = Sin(b)"
    model = text_model(
        "(float[batch,256] x) => (float[batch,32] y)", body, constants={"w": weights, "steep": np.float32(3e4)}
    )
    artifact = ortisan.build(model, tmp_path / "out", keep="all", tune="off", name="net")
    assert artifact.ops == ("net_0",)
    assert artifact.verification is not None
    noisy = artifact.verification.noisy["y"]
    assert noisy.noise is not None
    assert noisy.noise.max_abs > 1e-4
    assert artifact.manifest["noisy_node"].startswith(("Sin", "MatMul"))
