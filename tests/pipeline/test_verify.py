"""verify: agreement, a difference that is found and placed, and the model to compare with."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ortisan
from ortisan.pipeline.check import verify
from tests.models.text import text_model
from tests.tolerances import APPROXIMATE

pytestmark = pytest.mark.build


@pytest.fixture
def tampered(folder: Path) -> Path:
    """The artifact with other weights of the second product."""
    data = bytearray((folder / "layers.onnx.data").read_bytes())
    weights = np.frombuffer(data, np.float32)
    weights[-64:] += 1.0
    (folder / "layers.onnx.data").write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["layers.onnx.data"]["sha256"] = hashlib.sha256(data).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_an_artifact_agrees(built: ortisan.Artifact) -> None:
    found = verify(built.folder).verification
    assert found.passed
    assert found.max_abs < APPROXIMATE
    assert len(found.cases) == 4
    assert "passed: 1 outputs, 4 cases" in repr(found)


def test_changed_weights_are_found_and_placed(tampered: Path) -> None:
    checked = verify(tampered, per_node=True)
    assert not checked.verification.passed
    with pytest.raises(ortisan.VerifyError, match="the worst is 'y'"):
        checked.verification.check()
    assert checked.departure is not None
    assert checked.departure.op_name.startswith("gemm")
    assert checked.departure.onnx_nodes == ("MatMul_1",)


@pytest.mark.parametrize("name", ["layers.onnx", "layers.onnx.data", "liblayers.so"])
def test_files_that_changed_are_neither_verified_nor_timed(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    monkeypatch.setattr("ortisan.runtime.artifact._HASHED_BYTES", 0)  # `load` would go by the sizes
    for check in (ortisan.verify, ortisan.bench):
        with pytest.raises(ortisan.ArtifactError, match=f"{name}' has changed since it was built"):
            check(folder)


def test_no_node_departs_in_a_good_artifact(built: ortisan.Artifact) -> None:
    assert verify(built.folder, per_node=True).departure is None


def test_an_artifact_without_patterns_is_compiled_again_without_them(tmp_path: Path) -> None:
    """A Gelu written out is one op with patterns and five without: another graph, and another domain."""
    body = "d = Div(x, root) e = Erf(d) p = Add(e, one) m = Mul(x, p) y = Mul(m, half)"
    constants = {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    model = text_model("(float[n] x) => (float[n] y)", body, constants=constants)
    artifact = ortisan.build(model, tmp_path / "out", keep="all", tune="off", patterns=False)
    assert artifact.domain != ortisan.compile(model, name=artifact.name).domain
    assert ortisan.verify(artifact, model=model, per_node=True).passed


def test_given_inputs(built: ortisan.Artifact, x: dict[str, np.ndarray], tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", **x)
    assert verify(built.folder, inputs=tmp_path / "inputs.npz").verification.cases == ("given inputs 1 (x 2x3x16)",)
    assert verify(built.folder, inputs=[x, x]).verification.cases == (
        "given inputs 1 (x 2x3x16)",
        "given inputs 2 (x 2x3x16)",
    )


@pytest.mark.parametrize("content", [b"", b"not a zip"])
def test_inputs_that_are_no_archive(content: bytes, built: ortisan.Artifact, tmp_path: Path) -> None:
    (tmp_path / "inputs.npz").write_bytes(content)
    with pytest.raises(ortisan.OptionError, match=r"expected an \.npz file"):
        verify(built.folder, inputs=tmp_path / "inputs.npz")


def test_inputs_that_ort_refuses(built: ortisan.Artifact, x: dict[str, np.ndarray]) -> None:
    wrong = {"x": np.zeros((1, 2), np.float32)}
    with pytest.raises(ortisan.OptionError, match=r"can't run the model on given inputs 1 \(x 1x2\): "):
        verify(built.folder, inputs=wrong)
    with pytest.raises(ortisan.OptionError, match=r"can't run the model on given inputs 2 \(x 1x2\): "):
        verify(built.folder, inputs=[x, wrong])


def test_the_model_is_gone_or_changed(folder: Path, model_file: Path, tmp_path: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace(str(model_file), str(tmp_path / "gone.onnx")))
    with pytest.raises(ortisan.ArtifactError, match="which is not there; pass the model"):
        verify(folder)
    assert verify(folder, model=model_file).verification.passed
    (tmp_path / "gone.onnx").write_bytes(model_file.read_bytes() + b"\0")
    with pytest.raises(ortisan.ArtifactError, match="has changed since"):
        verify(folder)


def test_samples_shrink_to_what_the_model_takes(tmp_path: Path) -> None:
    """A table of 5 positions: longer sequences fail in ONNX Runtime itself."""
    body = "n = Shape<start = 1, end = 2>(ids) p = Slice(table, zero, n, zero) e = Gather(words, ids) y = Add(e, p)"
    constants = {
        "table": np.arange(15, dtype=np.float32).reshape(5, 3),
        "words": np.ones((7, 3), np.float32),
        "zero": np.array([0]),
    }
    model = text_model("(int64[batch,seq] ids) => (float[batch,seq,3] y)", body, constants=constants)
    artifact = ortisan.build(model, tmp_path / "out", keep="all")
    assert artifact.verification is not None
    sizes = {int(case.partition("seq=")[2]) for case in artifact.verification.cases}
    assert max(sizes) in (3, 4, 5)
    with pytest.raises(ortisan.ArtifactError, match="built from a model in memory; pass the model"):
        verify(artifact.folder)


def test_a_dim_of_one_name_may_have_two_sizes(tmp_path: Path) -> None:
    """ONNX Runtime takes the name of a dim for a label; a compiled model that takes it for a promise is not right."""
    body = (
        "a = MatMul(x, v) b = Exp(a) s = ReduceSum(b, last) r = ReduceSum<keepdims=0>(b) u = Sigmoid(z) t = Add(u, r)"
    )
    model = text_model(
        "(float[2,width,8] x, float[2,width,3] z) => (float[2,width,1] s, float[2,width,3] t)",
        body,
        constants={"v": np.ones((8, 4), np.float32) / 8, "last": np.array([2])},
    )
    onnx.save(model, tmp_path / "model.onnx")
    artifact = ortisan.build(tmp_path / "model.onnx", tmp_path / "out", keep="all", tune="off")
    feeds = {"x": np.ones((2, 5, 8), np.float32), "z": np.ones((2, 4, 3), np.float32)}
    ours, theirs = ortisan.load(artifact.folder), ort.InferenceSession(tmp_path / "model.onnx")
    for a, b in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=APPROXIMATE)
