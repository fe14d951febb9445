"""Times tiles on the GPUs of this machine, with AITemplate's profilers: told step by step, and in words when it fails.

AITemplate compiles the profilers with make and keeps what make says to itself; here it is read.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from aitemplate.backend import builder, profiler_runner
from aitemplate.compiler import compiler

from ortisan.codegen.ait.worker.marks import PROGRESS

_COMPILED = re.compile(r"-o (?:\S*/)?(\S+)")
_ERROR = re.compile(r"\berror\b|\bfatal\b|not found|No such file", re.IGNORECASE)
_KEPT = 200
_SHOWN = 3
_ADVICE = "tune='off' (--tune off) builds without timing"


class ProfilingError(RuntimeError):
    """Tiles can't be timed here."""


def set_environment(job: dict[str, Any]) -> None:
    """What the profilers are compiled and run with; the driver's order of GPUs is nvidia-smi's."""
    paths = [job["curand"], *filter(None, os.environ.get("CPATH", "").split(os.pathsep))]
    os.environ.update(CPATH=os.pathsep.join(paths), CUDA_DEVICE_ORDER="PCI_BUS_ID", CACHE_DIR=job["profile_cache"])


def watch_profiling() -> None:
    """Takes the place of AITemplate's own way to run make and profilers."""
    said: deque[str] = deque(maxlen=_KEPT)
    builder._run_make_cmds = _run_make
    profiler_runner.run_task = _listening(profiler_runner.run_task, said)
    profiler_runner.process_task = _keeping_errors(profiler_runner.process_task, said)
    compiler.compiler.transform.profile = _checked(compiler.compiler.transform.profile, said)


def chosen_kernels(op: Any) -> list[str]:
    """The kernel for each range of sizes, "" where none was chosen; products keep it in a record."""
    return [str(getattr(item, "algo", item)) for item in op._attrs.get("exec_path", {}).values()]


def say(text: str) -> None:
    print(f"{PROGRESS}{text}", flush=True)


def _run_make(cmds: Sequence[str], timeout: int, build_dir: str, allow_cache: bool = True) -> None:
    """Runs make to its end, whatever AITemplate thinks of the time it takes."""
    done, lines = 0, deque[str](maxlen=_KEPT)
    for command in cmds:
        try:
            process = subprocess.Popen(
                shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            )
        except OSError as error:
            raise ProfilingError(
                f"GNU make is needed to time tiles, and can't be started: {error}; {_ADVICE}"
            ) from error
        for line in process.stdout or ():
            lines.append(line.strip())
            if found := _COMPILED.search(line):
                done += 1
                say(f"compiled profiler {done}, {found[1].partition('_')[0]}")
        if process.wait() != 0:
            raise ProfilingError(f"The profilers that time tiles can't be compiled: {_told(lines)}; {_ADVICE}")


def _told(lines: Sequence[str]) -> str:
    errors = [line for line in lines if _ERROR.search(line)] or [line for line in lines if line]
    return " | ".join(errors[:_SHOWN]) or "make said nothing"


def _listening(run_task: Callable[..., Any], said: deque[str]) -> Callable[..., Any]:
    """Tells which profiler is run, and keeps what one says on its error output."""

    def run(cmds: Sequence[str], *args: Any) -> Any:
        say(f"timing {os.path.basename(os.path.dirname(cmds[0]))} {' x '.join(cmds[1:4])}")
        output, errors = run_task(cmds, *args)
        said.extend(line.strip() for line in errors.splitlines())
        return output, errors

    return run


def _keeping_errors(process_task: Callable[[Any], None], said: deque[str]) -> Callable[[Any], None]:
    def process(task: Any) -> None:
        said.extend(line.strip() for line in str(task._stderr).splitlines())
        process_task(task)

    return process


def _checked(profile: Callable[..., Any], said: deque[str]) -> Callable[..., Any]:
    """A profiler that fails leaves its product without a kernel, or makes AITemplate fail in some other place."""

    def run(graph: Sequence[Any], *args: Any, **kwargs: Any) -> None:
        try:
            profile(graph, *args, **kwargs)
        except ProfilingError:
            raise
        except Exception as error:
            raise ProfilingError(_failed(f"{error}", said)) from error
        for op in (op for tensor in graph for op in tensor._attrs["src_ops"]):
            if not all(chosen_kernels(op)):
                raise ProfilingError(_failed(f"no kernel of {op._attrs['op']} ran", said))

    return run


def _failed(what: str, said: Sequence[str]) -> str:
    words = [line for line in said if line]
    return f"Tiles can't be timed on this machine's GPU: {what}{f' ({words[-1]})' if words else ''}; {_ADVICE}"
