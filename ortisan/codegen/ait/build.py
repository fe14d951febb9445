"""Builds a library for GPUs out of AITemplate's sources and our glue, with nvcc."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ortisan.codegen.ait.model import AitInstall
from ortisan.codegen.backend import Built
from ortisan.codegen.tools.cmake import Project, build_project, check_name, library_file
from ortisan.codegen.tools.cuda import Cuda, check_architectures, find_cuda, find_curand
from ortisan.codegen.tools.toolchain import Compiler, find_compiler
from ortisan.errors import ToolchainError

_CUTLASS_HEADER = "include/cutlass/cutlass.h"


def build_cuda_library(
    sources: Mapping[str, str | bytes],
    *,
    name: str,
    architectures: Sequence[str],
    install: AitInstall,
    on_progress: Callable[[str], None] | None = None,
) -> Built:
    """Builds `sources` (of `render_cuda_library`) into lib`name`.so. `on_progress` is told each source."""
    start = time.perf_counter()
    project = cuda_project(sources, name=name, architectures=architectures, install=install)
    folder, cached = build_project(project, on_progress)
    return Built(folder / library_file(name), None, told(project), time.perf_counter() - start, cached)


def told(project: Project) -> str:
    """What a project is built with."""
    return f"{project.tools['compiler']}, nvcc {project.tools['cuda']}"


def cuda_project(
    sources: Mapping[str, str | bytes], *, name: str, architectures: Sequence[str], install: AitInstall
) -> Project:
    """What is built. A `ToolchainError` says which tool is missing, or what it can't do."""
    check_name(name)
    cuda, compiler = find_cuda(), find_compiler()
    if compiler.kind == "zig":
        raise ToolchainError(
            "nvcc works with g++ or clang++ only, not with zig; install g++, or set CXX to one of them."
        )
    check_architectures(cuda, architectures)
    if not (install.cutlass / _CUTLASS_HEADER).is_file():
        raise ToolchainError(
            f"AITemplate's CUTLASS is not in '{install.cutlass}'; 'git submodule update --init 3rdparty/cutlass' in "
            "the checkout of AITemplate brings it."
        )
    tools = {"compiler": compiler.version, "cuda": cuda.version, "aitemplate": install.commit or install.version}
    settings = {"CMAKE_BUILD_TYPE": "Release", "CMAKE_CUDA_ARCHITECTURES": ";".join(architectures)}
    places = _places(cuda, compiler, install)
    return Project(name, sources, settings, tools, (library_file(name),), unkeyed=places)


def _places(cuda: Cuda, compiler: Compiler, install: AitInstall) -> dict[str, str]:
    """Where things are, which says nothing about what they are."""
    places = {
        "CMAKE_CXX_COMPILER": ";".join(compiler.argv),
        "CMAKE_CXX_COMPILER_WORKS": "ON",
        "CMAKE_CUDA_COMPILER": str(cuda.nvcc),
        "CMAKE_CUDA_HOST_COMPILER": host_program(compiler),
        "ORTISAN_AITEMPLATE": str(include_root(install)),
        "ORTISAN_CUTLASS": str(install.cutlass),
        "ORTISAN_CURAND_INCLUDE": str(find_curand(cuda, install.python)),
    }
    if ccache := shutil.which("ccache"):
        places["ORTISAN_CCACHE"] = ccache
    return places


def host_program(compiler: Compiler) -> str:
    """What nvcc calls: the compiler itself, where `$CXX` starts it through another program (`ccache g++`)."""
    return next((word for word in compiler.argv if "++" in Path(word).name), compiler.argv[0])


def include_root(install: AitInstall) -> Path:
    """The checkout, or the folder of the installed package: what holds static/include."""
    return install.root if install.root is not None else install.cutlass.parents[1]
