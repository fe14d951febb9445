"""weights=: what build records, what load sets, and who has the last word."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import ortisan
from ortisan.pipeline.check import bench
from tests.tolerances import SAME

pytestmark = pytest.mark.build

KEY = "custom_op.layers_0.weights"


def entry(session: ort.InferenceSession) -> str | None:
    """What the session was told."""
    try:
        return str(session.get_session_options().get_session_config_entry(KEY))
    except RuntimeError:
        return None


def record(folder: Path, weights: str) -> Path:
    """Changes the manifest's default."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"settings": {"weights": weights}}))
    return folder


@pytest.mark.parametrize("weights", [None, "auto", "mapped", "huge"])
def test_load_tells_the_session(
    built: ortisan.Artifact, model_file: Path, x: dict[str, np.ndarray], weights: str | None
) -> None:
    session = ortisan.load(built.folder, weights=weights)  # type: ignore[arg-type]
    assert entry(session) == weights
    expected = ort.InferenceSession(model_file, providers=["CPUExecutionProvider"]).run(None, x)[0]
    np.testing.assert_allclose(session.run(None, x)[0], expected, atol=SAME)


def test_build_records_the_default(model_file: Path, tmp_path: Path) -> None:
    artifact = ortisan.build(model_file, tmp_path / "out", keep="all", weights="huge")
    assert artifact.settings == {"weights": "huge"}
    assert entry(ortisan.load(artifact.folder)) == "huge"
    assert entry(ortisan.load(artifact.folder, weights="mapped")) == "mapped"


def test_each_op_of_an_artifact_is_told(model_file: Path, tmp_path: Path) -> None:
    artifact = ortisan.build(model_file, tmp_path / "out", keep="all", exclude="Softmax", weights="mapped")
    options = ortisan.load(artifact.folder).get_session_options()
    assert [options.get_session_config_entry(f"custom_op.{op}.weights") for op in artifact.ops] == ["mapped", "mapped"]


def test_the_callers_options_are_above_the_manifest(folder: Path) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry(KEY, "mapped")
    assert entry(ortisan.load(record(folder, "huge"), options)) == "mapped"


def test_the_argument_is_above_the_callers_options(built: ortisan.Artifact) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry(KEY, "mapped")
    assert entry(ortisan.load(built.folder, options, weights="huge")) == "huge"


def test_options_that_know_the_library_are_told_too_late(built: ortisan.Artifact) -> None:
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(built.library))
    with pytest.raises(ortisan.OptionError, match=f"comes too late; set the session config entry '{KEY}' before"):
        ortisan.load(built.folder, options, weights="huge")


def test_no_setting_is_claimed_that_comes_too_late(folder: Path) -> None:
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(next(folder.glob("lib*.so"))))
    assert entry(ortisan.load(record(folder, "huge"), options)) is None


def test_an_unknown_value(built: ortisan.Artifact, model_file: Path, tmp_path: Path, folder: Path) -> None:
    said = "weights must be 'auto', 'mapped' or 'huge', not 'tiny'"
    with pytest.raises(ortisan.OptionError, match=said):
        ortisan.load(built.folder, weights="tiny")  # type: ignore[arg-type]
    with pytest.raises(ortisan.OptionError, match=said):
        ortisan.build(model_file, tmp_path / "out", weights="tiny")  # type: ignore[arg-type]
    with pytest.raises(ortisan.OptionError, match=said):
        bench(built.folder, weights="tiny")  # type: ignore[arg-type]
    with pytest.raises(ortisan.ArtifactError, match=f"layers_0: the session config entry '{KEY}' is 'tiny', expected"):
        ortisan.load(record(folder, "tiny"))


def test_ops_without_the_setting_are_not_told(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"settings": {}}))
    assert entry(ortisan.load(folder)) is None
    with pytest.raises(ortisan.OptionError, match="whose custom ops have no setting 'weights'"):
        ortisan.load(folder, weights="huge")


def test_bench_takes_it(built: ortisan.Artifact) -> None:
    assert bench(built.folder, runs=1, weights="huge").runs == 1
