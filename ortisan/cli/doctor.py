"""What is there, what is missing and how to get it: compilers, build tools, ONNX Runtime, CPU, GPU, AITemplate."""

from __future__ import annotations

import importlib.metadata
import platform
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ortisan._version import __version__
from ortisan.codegen.ait.build import include_root
from ortisan.codegen.ait.detect import find_aitemplate
from ortisan.codegen.cpu.isa import cpu_features, native_isa
from ortisan.codegen.tools.cache_place import chosen_folder, why_not_trusted
from ortisan.codegen.tools.cuda import find_cuda
from ortisan.codegen.tools.toolchain import find_cmake, find_compiler, find_ninja, gpus, tool_version
from ortisan.errors import OrtisanError
from ortisan.runtime.engine import onnxruntime
from ortisan.runtime.providers import package_of, why_not_provided

_GPU_PROVIDER = "CUDAExecutionProvider"

State = Literal["ok", "missing", "optional"]


@dataclass(frozen=True)
class Finding:
    """One line of the report; `state` is "optional" when something absent is not needed for CPU builds."""

    what: str
    state: State
    detail: str


def examine_machine() -> tuple[Finding, ...]:
    return (
        Finding("ortisan", "ok", f"{__version__}, Python {platform.python_version()}"),
        _tool("C++ compiler", lambda: "{0.version} ({0.machine})".format(find_compiler())),
        _tool("cmake", lambda: tool_version(find_cmake())),
        _tool("ninja", lambda: f"ninja {tool_version(find_ninja())}"),
        _tool("onnxruntime", lambda: f"{onnxruntime().__version__}, providers: {_providers()}"),
        _tool("CPU", _cpu),
        _tool("pybind11", lambda: importlib.metadata.version("pybind11")),
        _optional("CUDA", _cuda),
        _optional("AITemplate", _aitemplate),
        _gpu(),
        _cache(),
    )


def _tool(what: str, describe: Callable[[], str]) -> Finding:
    try:
        return Finding(what, "ok", describe())
    except OrtisanError as error:
        return Finding(what, "missing", str(error))
    except importlib.metadata.PackageNotFoundError:
        return Finding(what, "missing", f"not installed; 'pip install {what}' brings it")


def _providers() -> str:
    names = (name.removesuffix("ExecutionProvider") for name in onnxruntime().get_available_providers())
    return ", ".join(names)


def _cpu() -> str:
    machine, features = platform.machine(), cpu_features()
    isa = native_isa(machine, features)
    wide = [name for name in ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile") if name in features]
    return f"{machine}, builds as cpu:{isa.name}" + (f" ({', '.join(wide)})" if wide else "")


def _optional(what: str, describe: Callable[[], str]) -> Finding:
    """A line about what only GPU targets need."""
    try:
        return Finding(what, "ok", describe())
    except OrtisanError as error:
        return Finding(what, "optional", f"for GPU targets: {error}")


def _aitemplate() -> str:
    """Looks at the files only: importing AITemplate would bring in torch."""
    install = find_aitemplate()
    commit = f", commit {install.commit[:8]}" if install.commit else ""
    return f"{install.version}{commit}, in {include_root(install)}, run by {install.python}"


def _cuda() -> str:
    cuda = find_cuda()
    return f"nvcc {cuda.version} in {cuda.root or cuda.nvcc}"


def _gpu() -> Finding:
    names = gpus()
    if not names:
        return Finding(
            "GPU",
            "optional",
            "none: nvidia-smi lists no GPU; GPU targets can be built here, and verified by emulation, but not run",
        )
    provider = why_not_provided([_GPU_PROVIDER])
    state: State = "ok" if provider is None else "optional"
    return Finding(
        "GPU", state, ", ".join(names) + (f"; but {provider}: install {package_of(_GPU_PROVIDER)}" if provider else "")
    )


def _cache() -> Finding:
    folder = chosen_folder()
    if (reason := why_not_trusted(folder)) is not None:
        return Finding(
            "build cache", "optional", f"not used, because {reason}; set ORTISAN_CACHE_DIR to a folder of yours"
        )
    if not _is_writable(folder):
        detail = f"'{folder}' can't be written, so nothing is remembered; set ORTISAN_CACHE_DIR to a folder that can"
        return Finding("build cache", "optional", detail)
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()] if folder.is_dir() else []
    return Finding("build cache", "ok", f"{folder}, {sum(sizes) / 1e6:.1f} MB in {len(sizes)} files")


def _is_writable(folder: Path) -> bool:
    """Tried, because rights alone don't tell: a file system may be read-only or full."""
    above = next((each for each in (folder, *folder.absolute().parents) if each.exists()), folder)
    try:
        with tempfile.TemporaryFile(dir=above) as file:
            file.write(b"ortisan")
            file.flush()
    except OSError:
        return False
    return True
