"""Builds the C++ drivers beside this file against the kernel headers, each at most once per test run.

ORTISAN_TEST_ISA names the target to build them for, instead of this machine's CPU. Drivers of another architecture run
in an emulator. ORTISAN_TEST_CALLS is a shell command that calls go through, with {} in the place of remote.cpp's, which
records calls or answers them from a recording.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ortisan.codegen.cpu.folders import KERNEL_FOLDERS
from ortisan.codegen.cpu.isa import ISAS, Isa, why_not_run
from ortisan.codegen.render import TEMPLATES
from ortisan.codegen.tools.cmake import KERNEL_FLAGS
from ortisan.codegen.tools.toolchain import Compiler, find_compiler
from ortisan.errors import ToolchainError
from tests.cpp.remote import RemoteLibrary, emulator

HERE = Path(__file__).parent
HEADERS = [TEMPLATES / folder for folder in ("graph", *KERNEL_FOLDERS)]
FLAGS = ["-O3", "-std=c++17", "-Wall", "-Wextra", "-Werror", *KERNEL_FLAGS]


@pytest.fixture(scope="session")
def isa(request: pytest.FixtureRequest) -> Isa | None:
    """The target of the drivers: a test's own, by indirect parametrization, or the run's. None is this CPU."""
    name = getattr(request, "param", None) or os.environ.get("ORTISAN_TEST_ISA")
    return ISAS[name] if name else None


@pytest.fixture(scope="session")
def compiler(isa: Isa | None) -> Compiler:
    try:
        found = find_compiler(machine=isa.machine if isa else None)
    except ToolchainError as error:
        pytest.skip(str(error))
    if isa and found.machine != isa.machine:
        pytest.skip(f"{found.argv[0]} builds for {found.machine}, not for {isa.machine}")
    return found


@pytest.fixture(scope="session")
def emulated(isa: Isa | None, compiler: Compiler) -> list[str]:
    """What programs of the target are started with: nothing, or an emulator."""
    if isa and isa.machine != platform.machine():
        return emulator(isa, compiler)
    if isa and (reason := why_not_run(isa)):
        pytest.skip(reason)
    return []


@pytest.fixture(scope="session")
def build_driver(isa: Isa | None, compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """build_driver("stem", "-flag", ...) -> path of the binary made from stem.cpp."""
    folder = tmp_path_factory.mktemp("drivers")
    built: dict[tuple[str, ...], Path] = {}

    def compile_once(stem: str, *flags: str) -> Path:
        march = [flag for flag in flags if flag.startswith("-march=")]
        if isa and march not in ([], ["-march=native"]):
            pytest.skip(f"{march[0]} is not the target {isa.name}")
        key = (stem, *flags)
        if key not in built:
            target = folder / f"{stem}_{len(built)}"
            rest = [flag for flag in flags if flag not in march]
            chosen = list(isa.flags) if isa else march or ["-march=native"]
            source = str(HERE / f"{stem}.cpp")
            command = [
                *compiler.argv,
                *FLAGS,
                *chosen,
                *(f"-I{folder}" for folder in HEADERS),
                source,
                "-o",
                str(target),
                "-pthread",
                *rest,
            ]
            subprocess.run(command, check=True)
            built[key] = target
        return built[key]

    return compile_once


@pytest.fixture(scope="session")
def compile_driver(build_driver: Callable[..., Path], emulated: list[str]) -> Callable[..., Path]:
    """Like build_driver; a program of another architecture is a script that starts it in the emulator."""

    def compile_one(stem: str, *flags: str) -> Path:
        program = build_driver(stem, *flags)
        if not emulated or "-shared" in flags:
            return program
        script = program.with_suffix(".sh")
        script.write_text(f'#!/bin/sh\nexec {shlex.join([*emulated, str(program)])} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        return script

    return compile_one


@pytest.fixture(scope="session")
def open_library(compile_driver: Callable[..., Path], emulated: list[str]) -> Iterator[Callable[[Path], Any]]:
    """open_library(path) -> the functions of a shared library of the target, as ctypes offers them."""
    remote: list[RemoteLibrary] = []
    calls = os.environ.get("ORTISAN_TEST_CALLS")

    def open_one(path: Path) -> Any:
        if not emulated and not calls:
            return ctypes.CDLL(str(path))
        command = [str(compile_driver("remote", "-ldl")), str(path)]
        remote.append(RemoteLibrary(["sh", "-c", calls.replace("{}", shlex.join(command))] if calls else command))
        return remote[-1]

    yield open_one
    for library in remote:
        library.close()


@pytest.fixture(scope="session")
def load_driver(compile_driver: Callable[..., Path], open_library: Callable[[Path], Any]) -> Callable[[str], Any]:
    """load_driver("stem") -> stem.cpp as a shared library."""
    return lambda stem: open_library(compile_driver(stem, "-shared", "-fPIC"))


@pytest.fixture(params=[1, 3], ids=["serial", "threads"])
def lib(request: pytest.FixtureRequest, driver: ctypes.CDLL) -> Iterator[ctypes.CDLL]:
    """The driver of a test file, with one thread and with several."""
    driver.set_threads(request.param)
    yield driver
    driver.set_threads(1)
