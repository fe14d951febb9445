"""load: the session of an artifact, and what is said when it can't be had."""

from __future__ import annotations

import importlib
import json
import platform
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime as ort
import pytest

import ortisan
from ortisan.codegen.cpu.isa import cpu_features
from ortisan.runtime.artifact import open_artifact
from ortisan.runtime.engine import open_session, quiet_options
from tests.tolerances import SAME

pytestmark = pytest.mark.build


def load_error(folder: Path) -> str:
    with pytest.raises(ortisan.ArtifactError) as error:
        ortisan.load(folder)
    return str(error.value)


def test_a_session_gives_what_stock_ort_gives(
    built: ortisan.Artifact, model_file: Path, x: dict[str, np.ndarray]
) -> None:
    expected = ort.InferenceSession(model_file, providers=["CPUExecutionProvider"]).run(None, x)
    np.testing.assert_allclose(ortisan.load(built.folder).run(None, x)[0], expected[0], atol=SAME)


def test_options_and_artifacts_are_taken_too(built: ortisan.Artifact, x: dict[str, np.ndarray]) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ortisan.load(built, options, providers=["CPUExecutionProvider"])
    assert session.get_session_options().intra_op_num_threads == 1


def test_options_that_know_the_library_already(built: ortisan.Artifact, x: dict[str, np.ndarray]) -> None:
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(built.library))
    first = ortisan.load(built.folder, options).run(None, x)[0]
    again = ortisan.load(built.folder, options).run(None, x)[0]
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("name", ["layers.onnx", "layers.onnx.data", "liblayers.so"])
def test_a_missing_file(name: str, folder: Path) -> None:
    (folder / name).unlink()
    assert f"lacks '{name}'" in load_error(folder)


@pytest.mark.parametrize("name", ["layers.onnx", "layers.onnx.data", "liblayers.so"])
def test_a_changed_file(name: str, folder: Path) -> None:
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 0xFF
    (folder / name).write_bytes(data)
    assert f"{name}' has changed since it was built" in load_error(folder)
    (folder / name).write_bytes(data[:-1])
    assert f"{name}' has changed since it was built" in load_error(folder)


def test_not_an_artifact(tmp_path: Path) -> None:
    assert "has no manifest.json" in load_error(tmp_path)
    assert "does not exist" in load_error(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    assert "is a file" in load_error(tmp_path / "file")


@pytest.mark.parametrize(
    "text, words",
    [
        ("{", "can't be read"),
        ("[]", "is not one of Ortisan's"),
        ('{"format": 99}', "has manifest format 99"),
        ('{"format": 2}', "lacks 'name'"),
    ],
)
def test_a_bad_manifest(text: str, words: str, folder: Path) -> None:
    (folder / "manifest.json").write_text(text)
    assert words in load_error(folder)


def test_what_ort_refuses_is_one_sentence(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in ("liblayers.so", "layers.onnx"):
        del manifest["files"][name]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "layers.onnx").write_bytes(b"no model")
    message = load_error(folder)
    assert message.startswith(f"ONNX Runtime can't load '{folder}/layers.onnx': ")
    assert "\n" not in message
    (folder / "liblayers.so").unlink()
    (folder / "liblayers.so").write_bytes(b"no library")
    assert load_error(folder).startswith(f"ONNX Runtime can't register '{folder}/liblayers.so': ")


def test_the_folder_of_an_unfinished_build_is_not_named(tmp_path: Path) -> None:
    folder = tmp_path / ".out.abc.partial"
    folder.mkdir()
    (folder / "m.onnx").write_bytes(b"no model")
    with pytest.raises(ortisan.ArtifactError, match=r"^ONNX Runtime can't load the converted model 'm\.onnx': ") as got:
        open_session(folder / "m.onnx", quiet_options())
    assert "partial" not in str(got.value)


def test_an_artifact_that_was_built_again(model_file: Path, folder: Path, x: dict[str, np.ndarray]) -> None:
    """The library that a living session uses is not taken for the one that replaced it."""
    old = ortisan.load(folder)
    new = ortisan.build(model_file, folder, exclude="Softmax", keep="all")
    assert new.ops == ("layers_0", "layers_1")
    np.testing.assert_allclose(ortisan.load(folder).run(None, x)[0], old.run(None, x)[0], atol=SAME)


@pytest.mark.skipif("avx512f" in cpu_features(), reason="this CPU runs all x86 targets")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the target is for x86")
def test_a_cpu_that_lacks_a_feature(model_file: Path, tmp_path: Path) -> None:
    artifact = ortisan.build(model_file, tmp_path / "out", target="cpu:x86-64-v4")
    assert artifact.manifest["not_run"].startswith("this machine lacks avx512f")
    assert "this CPU has no avx512f" in load_error(tmp_path / "out")


def test_no_onnxruntime(built: ortisan.Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ortisan.ToolchainError, match=r"ortisan\[cpu\].*ortisan\[gpu\]"):
        ortisan.load(built.folder)


def test_an_old_onnxruntime(built: ortisan.Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(__version__="1.17.3"))
    with pytest.raises(ortisan.ToolchainError, match=r"onnxruntime 1\.17\.3 is too old: custom ops need 1\.18"):
        ortisan.load(built.folder)


def test_the_manifest_tells_what_there_is(built: ortisan.Artifact, model_file: Path) -> None:
    manifest = open_artifact(built.folder).manifest
    assert manifest["source"]["path"] == str(model_file)
    assert manifest["ops"][0]["symbols"] == {"batch": [0, None], "seq": [0, None]}
    assert manifest["flops_share"] == 1.0
    assert manifest["verification"]["passed"] is True
    assert manifest["bench"]["ratio"] > 0
    assert manifest["compiler"]
    assert list(manifest)[:4] == ["format", "ortisan", "name", "target"]


def test_a_load_opens_one_session(built: ortisan.Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = ort.InferenceSession

    def count(path: str, *rest: object, **more: object) -> object:
        opened.append(path)
        return real(path, *rest, **more)

    monkeypatch.setattr(ort, "InferenceSession", count)
    ortisan.load(built.folder, ort.SessionOptions())
    assert len(opened) == 1


def test_the_library_is_registered_once_however_often_it_is_asked(built: ortisan.Artifact) -> None:
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(built.library))
    for _ in range(2):
        assert ortisan.load(built.folder, options).get_outputs()
    assert options.get_session_config_entry(f"{built.domain}.registered") == "1"
