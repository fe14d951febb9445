"""Builds a library for CPUs out of its generated sources."""

from __future__ import annotations

import platform
import re
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping

import pybind11

from ortisan.codegen.backend import Built
from ortisan.codegen.cpu.isa import Isa
from ortisan.codegen.tools.build_cache import cache_key
from ortisan.codegen.tools.cmake import Project, build_project, check_name, library_file
from ortisan.codegen.tools.toolchain import Compiler, find_compiler
from ortisan.errors import OptionError, ToolchainError

_GLUE = "custom_ops.cpp"
_INSTANCE = "instance_"
_SANITIZERS = ("address,undefined", "thread")


def build_library(
    sources: Mapping[str, str | bytes],
    *,
    name: str,
    isa: Isa,
    bindings: bool = False,
    sanitize: str | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Built:
    """Builds `sources` (file name -> content, with a CMakeLists.txt that makes `name`) into lib`name`.so.

    With `bindings`, the Python module `name`_binding is built too. `on_progress` is told each step in a few words.
    """
    start = time.perf_counter()
    check_name(name)
    if sanitize is not None and sanitize not in _SANITIZERS:
        raise OptionError(f"There is no sanitizer build '{sanitize}'; choose one of {', '.join(_SANITIZERS)}.")
    compiler = find_compiler(machine=isa.machine)
    if compiler.machine != isa.machine:
        raise ToolchainError(
            f"{compiler.argv[0]} builds for {compiler.machine} and can't build for the target {isa.name}; "
            f"set CXX to a compiler for {isa.machine}, or unset it."
        )
    if bindings and _is_cross(compiler):
        raise OptionError(
            f"The Python module can't be built for {isa.name} here, because it needs the Python of a {isa.machine} "
            "machine; build it there, or build without bindings."
        )
    tools = {"compiler": compiler.version, "python": sys.version, "pybind11": pybind11.__version__}
    products = (library_file(name), _binding_file(name)) if bindings else (library_file(name),)
    settings = _settings(compiler, bindings, sanitize)
    project = Project(name, sources, settings, tools, products, shared=shared_sources(sources, name))
    folder, cached = build_project(project, on_progress)
    return Built(
        library=folder / library_file(name),
        binding=folder / _binding_file(name) if bindings else None,
        compiler=compiler.version,
        seconds=time.perf_counter() - start,
        cached=cached,
    )


def shared_sources(sources: Mapping[str, str | bytes], name: str) -> dict[str, str]:
    """The sources that say nothing of a model, with a digest of all that is compiled with them."""
    headers = {file: content for file, content in sources.items() if file.endswith(".h")}
    shared = [file for file in sources if file == _GLUE or file.startswith(_INSTANCE)]
    project = re.sub(rf"\b{name}(_binding)?\b", "", str(sources["CMakeLists.txt"]))
    lines = [line for line in project.splitlines() if not line.strip().endswith(".cpp")]
    surroundings = {**headers, "CMakeLists.txt": "\n".join(lines)}
    return {file: cache_key({**surroundings, "source": sources[file]}) for file in shared}


def _binding_file(name: str) -> str:
    return f"{name}_binding{sysconfig.get_config_var('EXT_SUFFIX') or '.so'}"


def _is_cross(compiler: Compiler) -> bool:
    return compiler.machine != platform.machine()


def _settings(compiler: Compiler, bindings: bool, sanitize: str | None) -> dict[str, str]:
    """CMake's -D settings. The compiler is known to work: CMake need not try it."""
    settings = {
        "CMAKE_CXX_COMPILER": ";".join(compiler.argv),
        "CMAKE_CXX_COMPILER_WORKS": "ON",
        "CMAKE_BUILD_TYPE": "Release",
        "ORTISAN_SANITIZE": sanitize or "",
        "ORTISAN_BINDINGS": "ON" if bindings else "OFF",
    }
    if _is_cross(compiler):
        settings |= {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": compiler.machine}
    if bindings:
        settings |= {"pybind11_DIR": pybind11.get_cmake_dir(), "Python_EXECUTABLE": sys.executable}
    return settings
