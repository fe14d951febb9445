"""Builds the machine: one library for all programs, made for this computer and kept in the build cache."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ortisan.codegen.render import plain_files, render
from ortisan.codegen.tools.cmake import Project, build_project, library_file
from ortisan.codegen.tools.toolchain import find_compiler

NAME = "ortisan_emulator"
_FOLDER = "emulator"


@dataclass(frozen=True)
class _Source:
    sources: tuple[str, ...]
    flags: tuple[str, ...]


def build_emulator(on_progress: Callable[[str], None] | None = None) -> Path:
    """The folder of libortisan_emulator.so and of emulator.h, the C interface."""
    compiler = find_compiler()
    files: dict[str, str | bytes] = {**plain_files(_FOLDER)}
    sources = tuple(sorted(name for name in files if name.endswith(".cpp")))
    files["CMakeLists.txt"] = render("cmake/emulator.CMakeLists.txt.j2", _Source(sources, _flags(compiler.machine)))
    settings = {
        "CMAKE_CXX_COMPILER": ";".join(compiler.argv),
        "CMAKE_CXX_COMPILER_WORKS": "ON",
        "CMAKE_BUILD_TYPE": "None",
    }
    tools = {"compiler": compiler.version, "cpu": _cpu()}
    folder, _ = build_project(Project(NAME, files, settings, tools, (library_file(NAME),)), on_progress)
    return folder


def _flags(machine: str) -> tuple[str, ...]:
    """The instructions of the CPU at hand; half a minute of compiling is not worth sharing between computers."""
    return ("-march=native",) if machine == "x86_64" else ("-mcpu=native",)


def _cpu() -> str:
    """What tells CPUs apart for whom "native" is not the same."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())
