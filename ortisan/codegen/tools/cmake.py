"""Builds a CMake project of generated sources with Ninja, and remembers the result in the cache."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ortisan.codegen.tools import build_cache as cache
from ortisan.codegen.tools.build_folder import build_folder
from ortisan.codegen.tools.cache_place import cache_folder, make_cache_folder
from ortisan.codegen.tools.detection import detection_key, keep_detection, take_detection
from ortisan.codegen.tools.objects import keep_objects, take_objects
from ortisan.codegen.tools.toolchain import BUILD_VARIABLES, find_cmake, find_ninja, run_tool
from ortisan.errors import OptionError, ToolchainError

KERNEL_FLAGS = (
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
)
"""What kernels are compiled with wherever they are compiled, beside -O3 and the flags of the instruction set."""

# Raise it when the way of building changes while sources and settings stay the same.
_CACHE_FORMAT = "1"
_LOG = "build.log"


@dataclass(frozen=True)
class Project:
    """What is built and all that the result depends on."""

    name: str
    sources: Mapping[str, str | bytes] = field(repr=False)
    """File name -> content, with a CMakeLists.txt."""
    settings: Mapping[str, str]
    """CMake's -D settings."""
    tools: Mapping[str, str]
    """What compiles it -> its version."""
    products: tuple[str, ...]
    """The files that the build makes."""
    unkeyed: Mapping[str, str] = field(default_factory=dict)
    """Settings that don't change the result."""
    shared: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sources that other projects have too -> a digest of all that their objects depend on, beside settings and tools.

    Such an object is compiled once: the cache has it then, and CMake finds it in the folder ORTISAN_OBJECTS.
    """


def check_name(name: str) -> None:
    if not (name.isidentifier() and name.isascii()):
        raise OptionError(f"A library can't be called {name!r}; use letters, digits and '_', and no digit first.")


def library_file(name: str) -> str:
    return f"lib{name}.so"


def build_project(project: Project, on_progress: Callable[[str], None] | None = None) -> tuple[Path, bool]:
    """The folder of the products, which belongs to the cache, and whether they were there already."""
    key = project_key(project)
    folder = cache.look_up(key, project.products)
    if folder is not None:
        return folder, True
    with build_folder() as work:
        files = _build(project, work, on_progress=on_progress, key=key)
        return _store_or_keep(key, files), False


def project_key(project: Project) -> str:
    """Names all that the result depends on."""
    parts: dict[str, str | bytes] = {f"source {file}": content for file, content in project.sources.items()}
    return cache.cache_key({**parts, **_surroundings(project)})


def _surroundings(project: Project) -> dict[str, str]:
    """What a result depends on beside its sources."""
    parts = {f"setting {key}": value for key, value in project.settings.items()}
    parts |= {f"variable {key}": os.environ.get(key, "") for key in BUILD_VARIABLES}
    return {**parts, **project.tools, "format": _CACHE_FORMAT}


def _build(project: Project, work: Path, *, on_progress: Callable[[str], None] | None, key: str) -> dict[str, Path]:
    """Configures and compiles in `work`; gives the finished files by name."""
    source, build, log = work / "src", work / "build", work / _LOG
    for file, content in project.sources.items():
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        (source / file).write_bytes(content.encode() if isinstance(content, str) else content)

    def tell(line: str) -> None:
        if on_progress is not None and (step := describe_step(line)):
            on_progress(step)

    cmake, ninja = str(find_cmake()), str(find_ninja())
    detection = detection_key(Path(cmake), _surroundings(project))
    detected = take_detection(detection, build)
    configure = [cmake, "-S", str(source), "-B", str(build), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *detected]
    settings = {**project.settings, **project.unkeyed}
    if project.shared:
        settings["ORTISAN_OBJECTS"] = str(take_objects(_object_keys(project), work / "objects"))
    configure += [f"-D{name}={value}" for name, value in settings.items()]
    compile_all = [cmake, "--build", str(build), "--parallel", str(_cores())]
    for phase, argv in (("configuring", configure), (f"compiling {_count(project)}", compile_all)):
        if on_progress is not None:
            on_progress(phase)
        if (code := run_tool(argv, log=log, on_line=tell, environment={"TMPDIR": str(work)})) != 0:
            raise _failure(project.name, code, key, log, work)
    if not detected:
        keep_detection(detection, build, work)
    keep_objects(_object_keys(project), build)
    return {file: build / file for file in project.products} | {_LOG: log}


def _object_keys(project: Project) -> dict[str, str]:
    """Shared source -> the key of its object in the cache."""
    around = _surroundings(project)
    return {
        source: cache.cache_key({**around, "object": source, "digest": digest})
        for source, digest in project.shared.items()
    }


def _count(project: Project) -> str:
    count = sum(file.endswith((".cpp", ".cu", ".cc")) for file in project.sources)
    return f"{count} source{'' if count == 1 else 's'}"


def describe_step(line: str) -> str | None:
    """ "compiling 7/23 gemm_3.cu" of a line of Ninja's about a finished step."""
    step = re.match(r"\[(\d+/\d+)\] (?:Building \w+ object (?:\S*/)?(\S+)\.o$)?", line)
    return f"compiling {step[1]} {step[2] or ''}".rstrip() if step else None


def _cores() -> int:
    if chosen := os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", ""):
        return max(int(chosen), 1) if chosen.isdigit() else 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_SOURCE_ERROR = re.compile(r":\d+: (fatal )?error: ")
_KILLED = re.compile(r"\b(terminated by|received) signal (9|15)\b|^Killed\b|fatal error: Killed signal", re.MULTILINE)
_OTHER_ERROR = re.compile(r"\berror:|undefined (reference|symbol)|No space left|\bkilled\b", re.IGNORECASE)


def _failure(name: str, code: int, key: str, log: Path, work: Path) -> ToolchainError:
    """The error for a failed build: a sentence, the first error lines, and where the whole log is kept."""
    text = log.read_text(encoding="utf-8", errors="replace").replace(f"{work}/src/", "")
    kept = _keep_log(log, f"{name}-{key[:12]}.log")
    if code < 0 or _KILLED.search(text):
        return ToolchainError(
            f"The build of '{name}' was killed, which most often means that memory ran out; build with fewer jobs at "
            f"once (CMAKE_BUILD_PARALLEL_LEVEL=1), or on a larger machine. The full log is in {kept}."
        )
    if "No space left on device" in text:
        return ToolchainError(
            f"The library can't be built in {work.parent} (No space left on device); set TMPDIR to a folder that has "
            f"room. The full log is in {kept}."
        )
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
    try:
        kept = make_cache_folder() / "logs"
        kept.mkdir(exist_ok=True)
        return Path(shutil.copy(log, kept / file))
    except OSError:
        return Path(shutil.copy(log, Path(tempfile.mkdtemp(prefix="ortisan-log-"), file)))


def _store_or_keep(key: str, files: Mapping[str, Path]) -> Path:
    """The files' new home: the cache, or a folder that lives as long as this process when the cache can't take them."""
    try:
        return cache.store(key, files)
    except OSError as error:
        warnings.warn(
            f"The build cache {cache_folder()} can't be written ({error.strerror or error}), so this build is "
            "not remembered; set ORTISAN_CACHE_DIR to a folder that can.",
            stacklevel=4,
        )
    kept = Path(tempfile.mkdtemp(prefix="ortisan-"))
    atexit.register(shutil.rmtree, kept, ignore_errors=True)
    for name, file in files.items():
        shutil.copy(file, kept / name)
    return kept
