"""What is there, what is missing and how to get it: compiler, build tools, ONNX Runtime, CPU, AITemplate, cache."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ortisan._version import __version__
from ortisan.codegen.cache import cache_folder
from ortisan.codegen.isa import cpu_features, native_isa
from ortisan.codegen.toolchain import find_cmake, find_compiler, find_ninja, tool_version
from ortisan.errors import OrtisanError
from ortisan.runtime.engine import onnxruntime

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
        _aitemplate(),
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


def _aitemplate() -> Finding:
    """Looks at the files only: importing AITemplate would bring in torch."""
    how = (
        "for GPU targets, which this version does not have yet; it comes from "
        "github.com/facebookincubator/AITemplate, not from PyPI"
    )
    spec = importlib.util.find_spec("aitemplate")
    if spec is None:
        return Finding("AITemplate", "optional", f"not installed; {how}")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if any(_has_compile_model(folder / "compiler") for folder in folders):
        return Finding("AITemplate", "ok", f"in {folders[0]}")
    return Finding("AITemplate", "optional", f"the installed 'aitemplate' is an unrelated package; {how}")


def _has_compile_model(folder: Path) -> bool:
    sources = folder.glob("*.py") if folder.is_dir() else ()
    return any("compile_model" in source.read_text(encoding="utf-8", errors="replace") for source in sources)


def _cache() -> Finding:
    folder = cache_folder()
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()] if folder.is_dir() else []
    return Finding("build cache", "ok", f"{folder}, {sum(sizes) / 1e6:.1f} MB in {len(sizes)} files")
