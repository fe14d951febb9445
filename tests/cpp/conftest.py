"""Builds the C++ drivers beside this file against the kernel headers, each at most once per test run."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HEADERS = HERE.parents[1] / "ortisan" / "templates" / "cpu"
FLAGS = [
    "-O3",
    "-std=c++17",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
]


@pytest.fixture(scope="session")
def compile_driver(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """compile_driver("stem", "-flag", ...) -> path of the binary made from stem.cpp."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler: neither $CXX nor g++ nor clang++")
    folder = tmp_path_factory.mktemp("drivers")
    built: dict[tuple[str, ...], Path] = {}

    def compile_once(stem: str, *flags: str) -> Path:
        key = (stem, *flags)
        if key not in built:
            target = folder / f"{stem}_{len(built)}"
            march = [] if any(flag.startswith("-march") for flag in flags) else ["-march=native"]
            source = str(HERE / f"{stem}.cpp")
            command = [*compiler.split(), *FLAGS, *march, f"-I{HEADERS}", source, "-o", str(target), "-pthread", *flags]
            subprocess.run(command, check=True)
            built[key] = target
        return built[key]

    return compile_once


@pytest.fixture(scope="session")
def load_driver(compile_driver: Callable[..., Path]) -> Callable[[str], ctypes.CDLL]:
    """load_driver("stem") -> stem.cpp as a shared library."""
    return lambda stem: ctypes.CDLL(str(compile_driver(stem, "-shared", "-fPIC")))
