"""keep="faster": what is slower than ONNX Runtime goes back to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ortisan
from ortisan.pipeline import build as build_module
from ortisan.pipeline import give_back
from ortisan.pipeline.check import bench, verify
from tests.tolerances import SAME

pytestmark = pytest.mark.build


@pytest.mark.parametrize(
    "ours, reason", [(1.0, None), (1.05, None), (1.2, "slower than ONNX Runtime: 1.20 times its time")]
)
def test_only_what_is_clearly_slower(ours: float, reason: str | None) -> None:
    assert give_back.slower_reason(ours, 1.0) == reason


def test_everything_goes_back(model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        build_module, "slower_reason", lambda ours, theirs: "slower than ONNX Runtime: 2.00 times its time"
    )
    artifact = ortisan.build(model_file, tmp_path / "out")
    assert artifact.ops == ()
    assert artifact.library is None
    assert "nothing compiled: ONNX Runtime is faster" in repr(artifact)
    assert artifact.given_back == ("layers_0: slower than ONNX Runtime: 2.00 times its time",)
    assert [node.op_type for node in onnx.load(artifact.model).graph.node] == [
        "MatMul",
        "Add",
        "Relu",
        "Softmax",
        "MatMul",
    ]
    assert ortisan.load(artifact.folder).get_inputs()[0].name == "x"
    assert not (artifact.folder / "src").exists()
    assert verify(artifact.folder).verification.passed


def test_one_of_two_goes_back(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, x: dict[str, np.ndarray]
) -> None:
    """Each subgraph is timed on its own, on what it gets in the model."""
    timed = []

    def reason(sides: object, options: object, values: dict[str, np.ndarray], providers: object) -> tuple[float, float]:
        timed.append(real(sides, options, values, providers))
        return (2.0, 1.0) if len(timed) == 1 else (1.0, 1.0)

    real = give_back._time
    monkeypatch.setattr(give_back, "_time", reason)
    monkeypatch.setattr(build_module, "slower_reason", lambda ours, theirs: None)
    artifact = ortisan.build(model_file, tmp_path / "out", exclude="Softmax")
    assert len(timed) == 2
    assert all(time > 0 for pair in timed for time in pair)
    assert artifact.ops == ("layers_1",)
    assert artifact.given_back == ("layers_0: slower than ONNX Runtime: 2.00 times its time",)
    reasons = {group["op_type"]: group["reason"] for group in artifact.manifest["left_out"]}
    assert reasons["Softmax"] == "excluded"
    assert reasons["Relu"].startswith("slower than")
    expected = ort.InferenceSession(model_file).run(None, x)[0]
    np.testing.assert_allclose(ortisan.load(artifact.folder).run(None, x)[0], expected, atol=SAME)
    assert verify(artifact.folder, per_node=True).departure is None


def test_bench_of_a_folder(built: ortisan.Artifact) -> None:
    result = bench(built.folder, threads=1, runs=3)
    assert (result.threads, result.runs, result.case) == (1, 3, "batch=1, seq=128")
    assert result.ratio == pytest.approx(result.ort.median / result.compiled.median)
    assert result.compiled.best <= result.compiled.median


@pytest.mark.parametrize(
    "options, words",
    [
        ({"against": "openvino"}, "can't time against 'openvino'"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"runs": -1}, "runs must be at least 1"),
    ],
)
def test_bench_options(options: dict[str, object], words: str, built: ortisan.Artifact) -> None:
    with pytest.raises(ortisan.OptionError, match=words):
        bench(built.folder, **options)  # type: ignore[arg-type]
