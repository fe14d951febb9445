"""Artifacts for GPUs: what the folder and its manifest say, and who may load it. Sources are AITemplate's own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import ortisan
from ortisan.codegen.ait.model import AitInstall
from ortisan.codegen.tools.cuda import find_cuda, find_curand
from ortisan.codegen.tools.toolchain import find_cmake, has_gpu
from ortisan.errors import ArtifactError, OptionError
from ortisan.runtime.artifact import open_compiled
from ortisan.runtime.providers import is_loaded

pytestmark = [pytest.mark.aitemplate]

TEXT = """<ir_version: 9, opset_import: ["" : 17]>
mlp (float[batch, 64] x) => (float[batch, 32] y) {
    h = MatMul(x, w)
    g = Add(h, b)
    r = Relu(g)
    y = MatMul(r, v)
}"""


def mlp() -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    generator = np.random.default_rng(0)
    for name, shape in (("w", (64, 64)), ("b", (64,)), ("v", (64, 32))):
        data = generator.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    return model


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> ortisan.Artifact:
    folder = tmp_path_factory.mktemp("gpu") / "mlp"
    return ortisan.build(mlp(), folder, target="cuda:86,90", dims={"batch": (1, 64)}, sources_only=True)


def test_the_manifest(sources: ortisan.Artifact, ait_install: AitInstall) -> None:
    manifest = json.loads((sources.folder / "manifest.json").read_text())
    assert manifest["target"] == "cuda:80,90"
    assert manifest["architectures"] == ["80", "90"]
    assert manifest["target_notes"] == ["sm_86 runs the code of sm_80"]
    assert manifest["cuda"] is None
    assert manifest["aitemplate"] == {"version": ait_install.version, "commit": ait_install.commit or None}
    assert manifest["profiled"] is False
    assert [warning.partition(":")[0] for warning in manifest["warnings"]] == ["not profiled"]
    assert manifest["not_run"] == "only the sources were written"
    assert manifest["verification"] is manifest["bench"] is None


def test_the_converted_model(sources: ortisan.Artifact) -> None:
    model = onnx.load(sources.model)
    onnx.checker.check_model(model, full_check=False)
    (node,) = model.graph.node
    assert (node.op_type, node.domain) == (sources.ops[0], sources.domain)
    assert node.input[0] == "x"
    weights = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    assert sorted(node.input[1:]) == sorted(weights)
    attributes = {attribute.name: attribute.s.decode() for attribute in node.attribute}
    assert attributes["hardware_architecture"] == "cuda:80,90"


def test_loading_needs_cuda(sources: ortisan.Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    sentence = "install onnxruntime-gpu; this artifact needs CUDAExecutionProvider"
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(ArtifactError, match=sentence):
        ortisan.load(sources.folder)
    with pytest.raises(ArtifactError, match=sentence):
        ortisan.load(sources.folder, providers=["CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    with pytest.raises(ArtifactError, match=r"needs CUDAExecutionProvider, which providers=.*lack"):
        ortisan.load(sources.folder, providers=["CPUExecutionProvider"])
    with pytest.raises(OptionError, match="whose custom ops have no setting 'weights'"):
        ortisan.load(sources.folder, weights="huge")
    with pytest.raises(ArtifactError, match="has only sources; build them"):
        ortisan.load(sources.folder)


def test_a_provider_that_does_not_load_is_told(sources: ortisan.Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime lists what it was compiled with, and leaves out what it can't load, as this CPU build does."""
    import onnxruntime

    asked: list[str] = []
    listed = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: asked.append("preloaded"), raising=False)
    monkeypatch.setattr("ortisan.runtime.artifact.register", lambda options, library: None)
    library = sources.folder / "libmlp.so"
    artifact = replace(sources, library=library)
    library.touch()
    try:
        with pytest.raises(ArtifactError, match=r"can't load CUDAExecutionProvider; the driver, CUDA, cuBLAS or cuDNN"):
            open_compiled(artifact, onnxruntime.SessionOptions())
    finally:
        library.unlink()
        is_loaded.cache_clear()
    assert asked == ["preloaded"]


def test_the_same_model_gives_the_same_sources(sources: ortisan.Artifact, tmp_path: Path) -> None:
    again = ortisan.build(mlp(), tmp_path / "mlp", target="cuda:80,90", dims={"batch": (1, 64)}, sources_only=True)
    assert again.manifest["sources_sha256"] == sources.manifest["sources_sha256"]
    assert again.domain == sources.domain


def test_generate_and_convert(tmp_path: Path) -> None:
    compiled = ortisan.compile(mlp(), target="cuda:80", dims={"batch": (1, 64)})
    library = ortisan.generate(compiled, tmp_path / "lib", sources_only=True)
    assert library.path is None
    assert (library.sources / "model_0" / "model-generated.h").is_file()
    converted = ortisan.convert_graph(mlp(), compiled)
    assert [node.op_type for node in converted.graph.node] == list(compiled.ops)
    with pytest.raises(OptionError, match="bindings and sanitize are for CPU targets"):
        ortisan.generate(compiled, tmp_path / "other", bindings=True)


@pytest.mark.nvcc
@pytest.mark.build
@pytest.mark.parametrize(
    "settings, sentence",
    [
        ([], "Set ORTISAN_AITEMPLATE to a checkout of AITemplate"),
        (["-DORTISAN_AITEMPLATE={root}", "-DORTISAN_CUTLASS=/nowhere"], "Set ORTISAN_CUTLASS to AITemplate's CUTLASS"),
    ],
)
def test_cmake_says_what_it_needs(
    sources: ortisan.Artifact, ait_install: AitInstall, tmp_path: Path, settings: list[str], sentence: str
) -> None:
    shutil.copytree(sources.folder / "src", tmp_path / "src")
    root = str(ait_install.root or ait_install.cutlass.parents[1])
    command = [str(find_cmake()), "-S", str(tmp_path / "src"), "-B", str(tmp_path / "build")]
    command += [setting.replace("{root}", root) for setting in settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert sentence in " ".join(done.stderr.split())


def test_a_failed_build_leaves_the_folder_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDACXX", "/nowhere/nvcc")
    with pytest.raises(ortisan.OrtisanError, match=r"\$CUDACXX is '/nowhere/nvcc'"):
        ortisan.build(mlp(), tmp_path / "out", target="cuda:80", dims={"batch": (1, 64)})
    assert list(tmp_path.iterdir()) == []


def test_the_command_line(tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    command = [sys.executable, "-m", "ortisan", "build", str(tmp_path / "mlp.onnx"), "-o", str(tmp_path / "out")]
    command += ["--arch", "80,90", "--dim", "batch=1:64", "--sources-only"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "for cuda:80,90" in done.stdout
    assert "Warning: not profiled" in " ".join(done.stdout.split())
    assert "Not verified and not timed: only the sources were written." in done.stdout


@pytest.mark.nvcc
@pytest.mark.build
@pytest.mark.slow
def test_a_built_artifact_and_its_sources(ait_install: AitInstall, tmp_path: Path) -> None:
    """nvcc builds it, and builds it again from src/ with nothing but CMake."""
    steps: list[str] = []
    artifact = ortisan.build(
        mlp(), tmp_path / "mlp", target="cuda:80", dims={"batch": (1, 64)}, on_progress=steps.append
    )
    assert any(step.startswith("compiling ") and step.endswith(".cu") for step in steps)
    assert artifact.manifest["cuda"] == find_cuda().version
    assert "nvcc" in artifact.manifest["compiler"]
    if not has_gpu():
        assert artifact.manifest["not_run"] == "this machine has no GPU"
    assert artifact.library is not None
    root = ait_install.root or ait_install.cutlass.parents[1]
    curand = find_curand(find_cuda(), ait_install.python)
    configure = [str(find_cmake()), "-S", str(artifact.folder / "src"), "-B", str(tmp_path / "build")]
    configure += [f"-DORTISAN_AITEMPLATE={root}", f"-DORTISAN_CURAND_INCLUDE={curand}"]
    for command in (configure, [str(find_cmake()), "--build", str(tmp_path / "build")]):
        subprocess.run(command, capture_output=True, text=True, check=True)
    assert (tmp_path / "build" / artifact.library.name).stat().st_size == artifact.library.stat().st_size
