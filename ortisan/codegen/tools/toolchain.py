"""Finds the C++ compiler, CMake and Ninja, and runs them. The only place in the package that starts processes.

The compiler is `$CXX`, else g++, else clang++, else the `zig c++` of the ziglang wheel; for another architecture it is
`$CXX`, else the cross compiler that Debian calls aarch64-linux-gnu-g++. CMake and Ninja are those of their wheels, else
those on PATH.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import platform
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ortisan.errors import ToolchainError

_HOW_TO_GET_ONE = (
    "install one with 'apt install g++' (Debian, Ubuntu), 'dnf install gcc-c++' (Fedora) or 'pip install ziglang'"
)

_ENDING_SECONDS = 2.0

# Variables that compilers and CMake obey, so that they are part of what a build depends on.
BUILD_VARIABLES = (
    *("CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
    *("CUDAFLAGS", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"),
)


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler that answered: how to call it, its family (gcc, clang, zig), version line and architecture."""

    argv: tuple[str, ...]
    kind: str
    version: str
    machine: str


def find_compiler(environ: Mapping[str, str] | None = None, *, machine: str | None = None) -> Compiler:
    """The compiler to use; a `ToolchainError` says what is wrong when there is none.

    `machine` is the architecture to build for, this one's by default. A compiler in $CXX may build for another.
    """
    environ = os.environ if environ is None else environ
    path = environ.get("PATH", os.defpath)
    if chosen := environ.get("CXX", "").strip():
        return _chosen_compiler(chosen, path)
    if machine is not None and machine != platform.machine():
        return _cross_compiler(machine, path)
    for name in ("g++", "clang++"):
        found = shutil.which(name, path=path)
        if found and (compiler := _ask_compiler((found,))):
            return compiler
    if (zig := _zig_of_wheel()) and (compiler := _ask_compiler((str(zig), "c++"))):
        return compiler
    raise ToolchainError(
        f"No C++ compiler was found: $CXX is not set and PATH has no g++ or clang++; {_HOW_TO_GET_ONE}."
    )


def _chosen_compiler(chosen: str, path: str) -> Compiler:
    """The compiler that $CXX names, or an error: a choice that does not work is never replaced silently."""
    try:
        words = shlex.split(chosen)
    except ValueError as error:
        raise ToolchainError(
            f"$CXX is {chosen!r}, which is no command line ({error}); unset it or set it to a compiler."
        ) from error
    program = shutil.which(words[0], path=path) if words else None
    if program is None:
        raise ToolchainError(f"$CXX is {chosen!r}, but there is no such program; unset it or set it to a C++ compiler.")
    compiler = _ask_compiler((program, *words[1:]))
    if compiler is None:
        raise ToolchainError(
            f"$CXX is {chosen!r}, but it does not answer --version as GCC or Clang do; "
            "unset it or set it to a C++ compiler."
        )
    return compiler


def _cross_compiler(machine: str, path: str) -> Compiler:
    """The compiler on PATH that builds for Linux on another architecture."""
    name = f"{machine}-linux-gnu-g++"
    found = shutil.which(name, path=path)
    if found and (compiler := _ask_compiler((found,))):
        return compiler
    raise ToolchainError(
        f"No C++ compiler for {machine} was found: $CXX is not set and PATH has no {name}; install one with "
        f"'apt install g++-{machine.replace('_', '-')}-linux-gnu' (Debian, Ubuntu), or set CXX to one."
    )


@functools.cache
def _ask_compiler(argv: tuple[str, ...]) -> Compiler | None:
    """What the program at `argv` says of itself; None when it is no compiler that we know."""
    version = output_of((*argv, "--version"))
    machine = output_of((*argv, "-dumpmachine"))
    if not version or not machine:
        return None
    if "clang" in version:
        kind = "zig" if Path(argv[0]).name == "zig" else "clang"
        if kind == "zig" and not any(word.startswith("-mcpu") for word in argv):
            argv = (*argv, "-mcpu=baseline")  # left alone, zig builds for the CPU that it runs on
    elif "Free Software Foundation" in version:
        kind = "gcc"
    else:
        return None
    return Compiler(argv, kind, version.splitlines()[0].strip(), machine.strip().partition("-")[0])


def _zig_of_wheel() -> Path | None:
    """The zig program inside the installed ziglang wheel."""
    spec = importlib.util.find_spec("ziglang")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (zig := Path(folder, "zig")).is_file():
            return zig
    return None


def find_cmake() -> Path:
    """CMake of the cmake wheel, else of PATH."""
    return _find_tool("cmake", "cmake", "CMAKE_BIN_DIR")


def find_ninja() -> Path:
    """Ninja of the ninja wheel, else of PATH."""
    return _find_tool("ninja", "ninja", "BIN_DIR")


def _find_tool(program: str, wheel: str, folder_attribute: str) -> Path:
    try:
        folder = getattr(importlib.import_module(wheel), folder_attribute, None)
    except ImportError:
        folder = None
    if folder and (tool := Path(folder, program)).is_file():
        return tool
    if found := shutil.which(program):
        return Path(found)
    raise ToolchainError(
        f"{program} was not found, neither as a Python package nor on PATH; 'pip install {wheel}' brings it."
    )


def tool_version(tool: Path) -> str:
    """The first line that `tool --version` prints, or an empty string."""
    return (output_of((str(tool), "--version")) or "").partition("\n")[0].strip()


def tool_environment() -> dict[str, str]:
    """The environment that tools run in: ours, with English messages and without settings that change their form."""
    dropped = ("LANGUAGE", "NINJA_STATUS", "CLICOLOR_FORCE", "CMAKE_GENERATOR", "MAKEFLAGS")
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    return {**environment, "LC_ALL": "C", "GCC_COLORS": ""}


def run_tool(
    argv: Sequence[str],
    *,
    log: Path,
    on_line: Callable[[str], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Runs `argv` to its end, appends what it says to `log`, tells `on_line` each line, and gives the exit code.

    When we are interrupted, the tool and all that it started are stopped before the interrupt goes on; when we are
    killed, too.
    """
    with log.open("a", encoding="utf-8") as out:
        out.write(f"$ {shlex.join(argv)}\n")
        try:
            process = subprocess.Popen(
                argv,
                env={**tool_environment(), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise ToolchainError(f"{argv[0]} can't be started: {error.strerror}.") from error
        try:
            with _ends_with_us(process.pid):
                for line in process.stdout or ():
                    out.write(line)
                    if on_line is not None:
                        on_line(line.rstrip("\n"))
                return process.wait()
        except BaseException:
            _end_group(process)
            raise
        finally:
            if process.stdout:
                process.stdout.close()


def _end_group(process: subprocess.Popen[str]) -> None:
    """Kills a process and all that it started, and waits until they are gone and write no more files."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        end = time.monotonic() + _ENDING_SECONDS  # where nobody reaps them, the dead stay in the group
        while time.monotonic() < end:
            os.killpg(process.pid, 0)
            time.sleep(0.01)


@contextlib.contextmanager
def _ends_with_us(group: int) -> Iterator[None]:
    """A shell waits for the end of a pipe that only this process writes to, and then ends a group of processes."""
    try:
        watch = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r line; kill -s KILL -- "-$1"', "sh", str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        yield
        return
    with watch:
        try:
            yield
        finally:
            watch.kill()


def gpus() -> tuple[str, ...]:
    """What the NVIDIA driver of this machine calls its GPUs."""
    return _ask_driver("name")


def gpu_architectures() -> tuple[str, ...]:
    """The compute capability of each GPU of this machine: ("80",)."""
    return tuple(capability.replace(".", "") for capability in _ask_driver("compute_cap"))


def _ask_driver(what: str) -> tuple[str, ...]:
    found = shutil.which("nvidia-smi")
    listed = output_of((found, f"--query-gpu={what}", "--format=csv,noheader")) if found else None
    return tuple(line.strip() for line in (listed or "").splitlines() if line.strip())


def has_gpu() -> bool:
    return bool(gpus())


def ask_tool(argv: Sequence[str], environment: Mapping[str, str], timeout: float = 120) -> tuple[int, str]:
    """The exit code of a short command and all that it says; 127 when it can't be run."""
    try:
        done = subprocess.run(
            argv,
            env={**tool_environment(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=timeout,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, done.stdout


def output_of(argv: Sequence[str], *, errors: bool = False) -> str | None:
    """What a short command prints, with `errors` on its error output; None when it can't be run or fails."""
    try:
        done = subprocess.run(
            argv,
            env=tool_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=60,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return done.stderr if errors else done.stdout
