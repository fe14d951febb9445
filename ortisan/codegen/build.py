"""Builds a folder of generated sources into a library with CMake and Ninja, and remembers the result in the cache."""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pybind11

from ortisan.codegen import cache
from ortisan.codegen.isa import Isa
from ortisan.codegen.toolchain import BUILD_VARIABLES, Compiler, find_cmake, find_compiler, find_ninja, run_tool
from ortisan.errors import OptionError, ToolchainError

# Raise it when the way of building changes while sources and flags stay the same.
_CACHE_FORMAT = "1"
_LOG = "build.log"
_SANITIZERS = ("address,undefined", "thread")


@dataclass(frozen=True)
class Built:
    """A finished build. The files belong to the cache: copy them, don't move them."""

    library: Path
    binding: Path | None
    compiler: str
    seconds: float
    cached: bool


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
    if not (name.isidentifier() and name.isascii()):
        raise OptionError(f"A library can't be called {name!r}; use letters, digits and '_', and no digit first.")
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
    settings = _settings(compiler, bindings, sanitize)
    key = _key(sources, settings, compiler)
    folder = cache.look_up(key)
    cached = folder is not None
    if folder is None:
        with _temporary_folder() as work:
            files = _build(sources, name, settings, work, bindings=bindings, on_progress=on_progress, key=key)
            folder = _store_or_keep(key, files)
    return Built(
        library=folder / _library_file(name),
        binding=folder / _binding_file(name) if bindings else None,
        compiler=compiler.version,
        seconds=time.perf_counter() - start,
        cached=cached,
    )


def _library_file(name: str) -> str:
    return f"lib{name}.so"


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


def _key(sources: Mapping[str, str | bytes], settings: Mapping[str, str], compiler: Compiler) -> str:
    parts: dict[str, str | bytes] = {f"source {file}": content for file, content in sources.items()}
    parts |= {f"setting {key}": value for key, value in settings.items()}
    parts |= {f"variable {key}": os.environ.get(key, "") for key in BUILD_VARIABLES}
    versions = {
        "compiler": compiler.version,
        "python": sys.version,
        "pybind11": pybind11.__version__,
        "format": _CACHE_FORMAT,
    }
    return cache.cache_key(parts | versions)


def _build(
    sources: Mapping[str, str | bytes],
    name: str,
    settings: Mapping[str, str],
    work: Path,
    *,
    bindings: bool,
    on_progress: Callable[[str], None] | None,
    key: str,
) -> dict[str, Path]:
    """Configures and compiles in `work`; gives the finished files by name."""
    source, build, log = work / "src", work / "build", work / _LOG
    source.mkdir()
    for file, content in sources.items():
        (source / file).write_bytes(content.encode() if isinstance(content, str) else content)

    def tell(line: str) -> None:
        if on_progress is not None and (step := re.match(r"\[(\d+/\d+)\] ", line)):
            on_progress(f"compiling {step[1]}")

    if on_progress is not None:
        on_progress("configuring")
    cmake, ninja = str(find_cmake()), str(find_ninja())
    configure = [cmake, "-S", str(source), "-B", str(build), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    configure += [f"-D{key}={value}" for key, value in settings.items()]
    compile_all = [cmake, "--build", str(build), "--parallel", str(_cores())]
    for argv in (configure, compile_all):
        if run_tool(argv, log=log, on_line=tell) != 0:
            raise _failure(name, key, log, work)
    names = [_library_file(name)] + ([_binding_file(name)] if bindings else [])
    return {file: build / file for file in names} | {_LOG: log}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_SOURCE_ERROR = re.compile(r":\d+: (fatal )?error: ")
_OTHER_ERROR = re.compile(r"\berror:|undefined (reference|symbol)|No space left|\bkilled\b", re.IGNORECASE)


def _failure(name: str, key: str, log: Path, work: Path) -> ToolchainError:
    """The error for a failed build: a sentence, the first error lines, and where the whole log is kept."""
    text = log.read_text(encoding="utf-8", errors="replace").replace(f"{work}/src/", "")
    kept = _keep_log(log, f"{name}-{key[:12]}.log")
    shown = "\n".join(f"  {line}" for line in _error_lines(text))
    return ToolchainError(f"The C++ build of '{name}' failed; the full log is in {kept}.\n{shown}")


def _error_lines(log: str) -> list[str]:
    """Up to three lines that tell what went wrong: the compiler's errors, else CMake's, the linker's, or the end."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("$ ")]
    if errors := [line for line in lines if _SOURCE_ERROR.search(line)]:
        return errors[:3]
    for number, line in enumerate(lines):
        if line.startswith("CMake Error"):
            return lines[number : number + 3]
    return [line for line in lines if _OTHER_ERROR.search(line)][:3] or lines[-3:]


def _keep_log(log: Path, file: str) -> Path:
    """Copies the log to a place that outlives the build folder."""
    kept = cache.cache_folder() / "logs"
    try:
        kept.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(log, kept / file))
    except OSError:
        return Path(shutil.copy(log, Path(tempfile.mkdtemp(prefix="ortisan-log-"), file)))


def _store_or_keep(key: str, files: Mapping[str, Path]) -> Path:
    """The files' new home: the cache, or a folder that lives as long as this process when the cache can't take them."""
    try:
        return cache.store(key, files)
    except OSError as error:
        warnings.warn(
            f"The build cache {cache.cache_folder()} can't be written ({error.strerror or error}), so this build is "
            "not remembered; set ORTISAN_CACHE_DIR to a folder that can.",
            stacklevel=4,
        )
    kept = Path(tempfile.mkdtemp(prefix="ortisan-"))
    atexit.register(shutil.rmtree, kept, ignore_errors=True)
    for name, file in files.items():
        shutil.copy(file, kept / name)
    return kept


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A folder to build in, gone afterwards. An `OSError` inside means that it can't hold the build."""
    try:
        with tempfile.TemporaryDirectory(prefix="ortisan-build-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
    except OSError as error:
        raise ToolchainError(
            f"The library can't be built in {tempfile.gettempdir()} ({error.strerror or error}); "
            "set TMPDIR to a folder that can be written and has room."
        ) from error
