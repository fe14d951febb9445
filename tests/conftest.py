"""What all tests share: a build cache of their own, one small artifact, and skips that say why."""

from __future__ import annotations

import importlib.util
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import numpy as np
import onnx
import pytest

import ortisan
from ortisan.codegen.ait.detect import find_aitemplate
from ortisan.codegen.tools.cuda import find_cuda
from ortisan.codegen.tools.toolchain import find_compiler, has_gpu
from ortisan.errors import ToolchainError
from ortisan.runtime.providers import why_not_provided
from tests.models.layers import two_layers

_REGISTRY = "https://pypi.org/simple/onnx-asr/"

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        find_compiler()
        compiler = None
    except ToolchainError as error:
        compiler = f"no C++ compiler: {error}"
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    torch = f"{' and '.join(missing)} not installed: pip install 'ortisan[torch]'" if missing else None
    reasons = {
        "build": compiler,
        "torch": torch,
        "nvcc": _why_no_nvcc(),
        "aitemplate": _why_no_aitemplate(),
        "gpu": _why_no_gpu(),
        "network": _why_no_network() if any(item.get_closest_marker("network") for item in items) else None,
    }
    for item in items:
        for marker, reason in reasons.items():
            if reason is not None and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_nvcc() -> str | None:
    try:
        find_cuda()
    except ToolchainError as error:
        return f"no CUDA compiler: {error}"
    return None


def _why_no_aitemplate() -> str | None:
    try:
        find_aitemplate()
    except ToolchainError as error:
        return f"no AITemplate: {error}"
    return None


def _why_no_gpu() -> str | None:
    if not has_gpu():
        return "no GPU: nvidia-smi lists none"
    return why_not_provided(["CUDAExecutionProvider"])


def _why_no_network() -> str | None:
    try:
        urllib.request.urlopen(_REGISTRY, timeout=5).close()
    except OSError as error:
        return f"no network: {_REGISTRY} can't be reached ({error})"
    return None


@pytest.fixture(scope="session", autouse=True)
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A build cache for this run, so that no test finds what another run left."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORTISAN_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a model of two layers."""
    path = tmp_path_factory.mktemp("model") / "layers.onnx"
    onnx.save(two_layers(), path)
    return path


@pytest.fixture(scope="session")
def built(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> ortisan.Artifact:
    """The artifact of the two layers, built once; tests that change one take `folder`."""
    return ortisan.build(model_file, tmp_path_factory.mktemp("artifact") / "layers", keep="all")


@pytest.fixture
def folder(built: ortisan.Artifact, tmp_path: Path) -> Path:
    """A copy of the artifact's folder."""
    return Path(shutil.copytree(built.folder, tmp_path / "layers"))


@pytest.fixture
def x() -> dict[str, np.ndarray]:
    """Inputs of the two layers."""
    return {"x": np.random.default_rng(1).normal(size=(2, 3, 16)).astype(np.float32)}
