"""Builds the kernels of an artifact into a library that gives them to PyTorch, out of the artifact's sources."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ortisan.codegen.cpu.isa import Isa, why_not_run
from ortisan.codegen.cpu.library import BuildSource
from ortisan.codegen.render import plain_files, render
from ortisan.codegen.tools.cmake import KERNEL_FLAGS, Project, build_project, check_name, library_file
from ortisan.codegen.tools.toolchain import find_compiler
from ortisan.errors import ToolchainError

_GLUE = ("custom_ops.cpp", "binding.cpp")
"""Of an artifact's sources: what calls the kernels there."""


@dataclass(frozen=True)
class TorchKit:
    """What of an installed PyTorch a build depends on: its version, and where its headers and libraries are."""

    version: str
    includes: tuple[str, ...]
    libraries: str
    cxx11_abi: bool


def build_torch_op(sources: Mapping[str, str | bytes], *, name: str, isa: Isa, kit: TorchKit) -> Path:
    """The library of the kernels in `sources` (an artifact's src folder), with `templates/torch/op.cpp` to reach them.

    It belongs to the build cache, whose key is the sources, the compiler and the version of PyTorch.
    """
    check_name(name)
    if why := why_not_run(isa):
        raise ToolchainError(f"the kernels are for {isa.name}, and {why}")
    _check_kit(kit)
    compiler = find_compiler()
    if compiler.machine != platform.machine() or compiler.kind == "zig":
        what = "brings a C++ library of its own" if compiler.kind == "zig" else f"builds for {compiler.machine}"
        raise ToolchainError(f"{compiler.argv[0]} {what}, which does not fit PyTorch's; set CXX to g++ or clang++")
    kernels = tuple(sorted(file for file in sources if file.endswith(".cpp") and file not in _GLUE))
    library = f"{name}_torch"
    build = BuildSource(library, isa.name, isa.machine, kernels, (*isa.flags, *KERNEL_FLAGS), isa.features)
    files = {**sources, **plain_files("torch"), "CMakeLists.txt": render("cmake/torch.CMakeLists.txt.j2", build)}
    settings = {
        "CMAKE_CXX_COMPILER": ";".join(compiler.argv),
        "CMAKE_CXX_COMPILER_WORKS": "ON",
        "CMAKE_BUILD_TYPE": "Release",
        "ORTISAN_TORCH_ABI": str(int(kit.cxx11_abi)),
    }
    places = {"ORTISAN_TORCH_INCLUDES": ";".join(kit.includes), "ORTISAN_TORCH_LIBRARIES": kit.libraries}
    tools = {"compiler": compiler.version, "torch": kit.version}
    project = Project(library, files, settings, tools, (library_file(library),), unkeyed=places)
    folder, _ = build_project(project)
    return folder / library_file(library)


def _check_kit(kit: TorchKit) -> None:
    header, library = Path("torch", "library.h"), Path(kit.libraries, "libtorch_cpu.so")
    if not any(Path(folder, header).is_file() for folder in kit.includes):
        raise ToolchainError(f"this PyTorch {kit.version} has no headers ({header}); install it from a wheel")
    if not library.is_file():
        raise ToolchainError(f"this PyTorch {kit.version} has no '{library}' to link with; install it from a wheel")
