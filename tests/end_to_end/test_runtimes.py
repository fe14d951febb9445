"""The artifact in the oldest and the newest ONNX Runtime, each in an environment of its own, with no Ortisan installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import ortisan
from ortisan.models import BertSize, bert

SCRIPT = """
import sys
import numpy as np, onnxruntime as ort
model, library, other, feeds, results = sys.argv[1:]
options = ort.SessionOptions()
options.add_session_config_entry("custom_op.bert0_0.weights", "gigantic")
try:
    options.register_custom_ops_library(library)
except Exception as error:
    print(error, file=sys.stderr)
options = ort.SessionOptions()
options.add_session_config_entry("custom_op.bert0_0.weights", "huge")
options.register_custom_ops_library(library)
options.register_custom_ops_library(other)
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
np.savez(results, *session.run(None, dict(np.load(feeds))))
print(ort.__version__)
"""


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ortisan.Artifact, ortisan.Artifact]:
    folder = tmp_path_factory.mktemp("artifacts")
    size = BertSize(layers=1, hidden=32, heads=2, intermediate=48, vocabulary=20, positions=16)
    return tuple(  # type: ignore[return-value]
        ortisan.build(bert(size, seed=seed), folder / f"bert{seed}", name=f"bert{seed}", keep="all", verify=False)
        for seed in range(2)
    )


@pytest.mark.build
def test_two_artifacts_in_one_session(artifacts: tuple[ortisan.Artifact, ortisan.Artifact]) -> None:
    """Their libraries register side by side, and one model can hold the ops of both."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    for artifact in artifacts:
        onnx.checker.check_model(str(artifact.model))
        options.register_custom_ops_library(str(artifact.library))
    ids = np.zeros((2, 5), np.int64)
    feeds = {"input_ids": ids, "attention_mask": ids + 1, "token_type_ids": ids}
    first, second = (ort.InferenceSession(str(a.model), options).run(None, feeds)[0] for a in artifacts)
    assert first.shape == second.shape == (2, 5, 32)
    assert not np.allclose(first, second)


@pytest.mark.build
@pytest.mark.slow
@pytest.mark.parametrize("requirement", ["onnxruntime==1.18.0", "onnxruntime"])
def test_runtime_in_its_own_environment(
    requirement: str, artifacts: tuple[ortisan.Artifact, ortisan.Artifact], tmp_path: Path
) -> None:
    if sys.version_info >= (3, 13) and "1.18" in requirement:
        pytest.skip("onnxruntime 1.18 has no wheel for Python 3.13")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    numpy = "numpy<2" if "1.18" in requirement else "numpy"
    subprocess.run([str(python), "-m", "pip", "install", "-q", requirement, numpy], check=True)
    ids = np.arange(10).reshape(2, 5)
    feeds = {"input_ids": ids, "attention_mask": (ids % 5 < 4).astype(np.int64), "token_type_ids": ids % 2}
    np.savez(tmp_path / "feeds.npz", **feeds)
    paths = [
        artifacts[0].model,
        artifacts[0].library,
        artifacts[1].library,
        tmp_path / "feeds.npz",
        tmp_path / "out.npz",
    ]
    said = subprocess.run([str(python), "-c", SCRIPT, *map(str, paths)], check=True, capture_output=True, text=True)
    assert said.stdout.startswith("1.")
    assert "bert0_0: the session config entry 'custom_op.bert0_0.weights' is 'gigantic', expected auto" in said.stderr
    want = ortisan.load(artifacts[0].folder).run(None, feeds)
    with np.load(tmp_path / "out.npz") as have:
        for index, expected in enumerate(want):
            np.testing.assert_array_equal(have[f"arr_{index}"], expected)
