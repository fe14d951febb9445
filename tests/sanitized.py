"""Runs generated libraries under sanitizers.

AddressSanitizer and UBSan: a Python script in a process of its own with the sanitizer's runtime preloaded, so that
stock ONNX Runtime can load the instrumented library. ThreadSanitizer: `cpp/thread_driver.cpp`, because ONNX Runtime's
thread pool is not instrumented and would be accused of races that are none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ortisan.codegen.tools.toolchain import find_compiler

DRIVERS = Path(__file__).parent / "cpp"

# Python and ONNX Runtime leak at exit: leaks get no exit code, which LSAN_OPTIONS can only say for all errors at once.
# Frames say their module even where they have a source line: that is how leaks of the library are told from others.
_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1:"
    "stack_trace_format='    #%n %p %F %S %M'",
    "LSAN_OPTIONS": "exitcode=0:max_leaks=0:print_suppressions=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=99:second_deadlock_stack=1",
}

_STAY_LOADED = "import ctypes, sys; ctypes.CDLL(sys.argv[1])\n"


def run_sanitized(script: str, kind: str, library: Path) -> str:
    """Runs Python text with the library's path in sys.argv[1] and gives all that it said; complaints fail the test.

    `kind` is what the library was built with: "address,undefined". Leaks count when the library is in their stack; it
    stays loaded until they are looked for. That search may fail on a busy machine, and is then repeated: Python always
    leaks something, so a run that tells of no leak at all did not look.
    """
    runtimes = [_runtime(f"lib{name}.so") for name in {"address,undefined": ("asan", "ubsan")}[kind]]
    preload = " ".join([*runtimes, _runtime("libstdc++.so.6")])
    environment = {**os.environ, **_OPTIONS, "LD_PRELOAD": preload, "PYTHONMALLOC": "malloc"}
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", _STAY_LOADED + script, str(library)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert not re.search("ERROR: AddressSanitizer|runtime error:", said), said
        if "leak of" in said:
            break
    else:
        pytest.fail(f"LeakSanitizer did not look for leaks, three times:\n{said}")
    leaks = [block for block in said.split("\n\n") if "leak of" in block and library.name in block]
    assert not leaks, "\n\n".join(leaks)
    return said


def run_threads(
    project: Mapping[str, str], folder: Path, *, sanitizer: str = "thread", sizes: Mapping[str, int] | None = None
) -> str:
    """Builds the thread driver over a src folder's kernels with a sanitizer, runs it, and gives what it said."""
    program = build_driver(project, "thread_driver.cpp", folder, sanitizer)
    return run_driver(program, *(f"{name}={size}" for name, size in (sizes or {}).items()))


def build_driver(project: Mapping[str, str], driver: str, folder: Path, sanitizer: str) -> Path:
    """A program of a driver of tests/cpp and the kernels of a src folder, with a sanitizer."""
    for name, text in project.items():
        (folder / name).write_text(text, encoding="utf-8")
    glue = ("custom_ops.cpp", "binding.cpp")
    kernels = [str(folder / name) for name in project if name.endswith(".cpp") and name not in glue]
    program = folder / driver.removesuffix(".cpp")
    flags = [
        "-std=gnu++17",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-fsanitize={sanitizer}",
        "-fno-sanitize-recover=all",
    ]
    sources = [str(DRIVERS / driver), *kernels]
    build = [*find_compiler().argv, *flags, "-I", str(folder), *sources, "-o", str(program), "-pthread"]
    built = subprocess.run(build, capture_output=True, text=True, check=False, timeout=600)
    assert built.returncode == 0, built.stderr
    return program


def run_driver(program: Path, *arguments: str) -> str:
    """What a driver says; complaints fail the test."""
    environment = {**os.environ, **_OPTIONS}
    done = subprocess.run(
        [str(program), *arguments], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _runtime(name: str) -> str:
    """The path of a library of the compiler's; the test is skipped when the compiler has none."""
    compiler = find_compiler()
    if compiler.kind != "gcc":
        pytest.skip(f"sanitizer runtimes are preloaded from GCC, and the compiler here is {compiler.version}")
    found = subprocess.run(
        [*compiler.argv, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(found).is_file():
        pytest.skip(f"the compiler has no {name}")
    return str(Path(found).resolve())
