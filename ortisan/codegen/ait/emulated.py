"""The twin of a library for GPUs that runs on the CPU: the same objects, linked with a CUDA runtime of host memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ortisan.codegen.ait.build import cuda_project, told
from ortisan.codegen.ait.model import AitInstall
from ortisan.codegen.backend import Built, Twin
from ortisan.codegen.render import plain_files, read_header, render
from ortisan.codegen.tools.cmake import Project, build_project, library_file

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


def twin_project(
    sources: Mapping[str, str | bytes], *, name: str, architectures: Sequence[str], install: AitInstall
) -> Project:
    """A library and its twin. `sources` are those of `render_cuda_library`, or of an artifact."""
    project = cuda_project(twin_sources(sources, name), name=name, architectures=architectures, install=install)
    return replace(project, products=(*project.products, _twin_file(name), library_file(RUNTIME)))


def build_twin(project: Project, on_progress: Callable[[str], None] | None = None) -> Twin:
    start = time.perf_counter()
    folder, cached = build_project(project, on_progress)
    library = folder / library_file(project.name)
    built = Built(library, None, told(project), time.perf_counter() - start, cached)
    return Twin(built, folder / _twin_file(project.name), folder / library_file(RUNTIME))


def _twin_file(name: str) -> str:
    return library_file(f"{name}_emulated")
