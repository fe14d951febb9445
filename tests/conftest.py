"""What all tests share: a build cache of their own, and skips that say why."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from ortisan.codegen.ait.detect import find_aitemplate
from ortisan.codegen.tools.cuda import find_cuda
from ortisan.codegen.tools.toolchain import find_compiler, has_gpu
from ortisan.errors import ToolchainError
from ortisan.runtime.providers import why_not_provided


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


@pytest.fixture(scope="session", autouse=True)
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A build cache for this run, so that no test finds what another run left."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORTISAN_CACHE_DIR", str(folder))
        yield folder
