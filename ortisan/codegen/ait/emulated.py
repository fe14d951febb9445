"""The twin of a library for GPUs that runs on the CPU: the same objects, linked with a CUDA runtime of host memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ortisan.codegen.ait.build import cuda_project
from ortisan.codegen.ait.model import AitInstall
from ortisan.codegen.render import plain_files, read_header, render
from ortisan.codegen.tools.cmake import build_project, library_file

RUNTIME = "ortisan_cuda"


@dataclass(frozen=True)
class TwinSource:
    library: str


def twin_sources(sources: Mapping[str, str | bytes], name: str) -> dict[str, str | bytes]:
    """The sources of a library, with those of its twin."""
    runtime = {**plain_files("emulator/runtime"), "emulator.h": read_header("emulator/emulator.h")}
    cmake = sources["CMakeLists.txt"]
    text = cmake if isinstance(cmake, str) else cmake.decode()
    both = text + render("cmake/emulated.CMakeLists.txt.j2", TwinSource(name))
    return {**sources, **{f"runtime/{file}": content for file, content in runtime.items()}, "CMakeLists.txt": both}


def build_twin(
    sources: Mapping[str, str | bytes],
    *,
    name: str,
    architectures: Sequence[str],
    install: AitInstall,
    on_progress: Callable[[str], None] | None = None,
) -> tuple[Path, Path]:
    """The twin, which runs in a CPU session, and the runtime, which has to be loaded before for all to see.

    `sources` are those of `render_cuda_library`, or of an artifact. The library itself is built with it.
    """
    project = cuda_project(twin_sources(sources, name), name=name, architectures=architectures, install=install)
    twin = library_file(f"{name}_emulated")
    products = (*project.products, twin, library_file(RUNTIME))
    folder, _ = build_project(replace(project, products=products), on_progress)
    return folder / twin, folder / library_file(RUNTIME)
