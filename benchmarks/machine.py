"""What this machine can do at most, measured: multiply-adds and reads per second."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ortisan.codegen.cpu.isa import find_isa
from ortisan.codegen.tools.cmake import KERNEL_FLAGS
from ortisan.codegen.tools.toolchain import find_compiler, run_tool
from ortisan.errors import ToolchainError

_SOURCE = Path(__file__).with_name("machine.cpp")
_FLAGS = ("-O3", "-std=c++17", *KERNEL_FLAGS, "-pthread", "-Wall", "-Wextra")
_PAGE = 4096
_FILE_BYTES = 256 << 20
"""As many as the program reads from memory: far beyond any cache."""


@dataclass(frozen=True)
class Limits:
    """Of some number of threads: GFLOP/s of fused multiply-adds, GB/s of reads in pages of 4 KB and of 2 MB.

    `read_mapped` is of a mapped file, in the pages that the system chose.
    """

    gflops: float
    read_4k: float
    read_2m: float | None
    read_mapped: float | None = None

    @property
    def read(self) -> float:
        return max(self.read_4k, self.read_2m or 0.0)

    def better_of(self, other: Limits | None) -> Limits:
        if other is None:
            return self
        return Limits(
            max(self.gflops, other.gflops),
            max(self.read_4k, other.read_4k),
            _better(self.read_2m, other.read_2m),
            _better(self.read_mapped, other.read_mapped),
        )


def _better(a: float | None, b: float | None) -> float | None:
    return max((rate for rate in (a, b) if rate is not None), default=None)


class Machine:
    """The measuring program, built once in `folder`. The limits are the best of all measurements so far."""

    def __init__(self, folder: Path, threads: Sequence[int]) -> None:
        self._log = folder / "machine.log"
        self._program = folder / "machine"
        self._threads = [str(count) for count in threads]
        self.limits: dict[int, Limits] = {}
        compiler = find_compiler()
        flags = (*_FLAGS, *find_isa("native").flags)
        run_program((*compiler.argv, *flags, str(_SOURCE), "-o", str(self._program)), self._log)
        self._file = folder / "machine.data"
        self._file.write_bytes(os.urandom(_PAGE) * (_FILE_BYTES // _PAGE))
        forget(self._file)

    def measure(self) -> None:
        lines = run_program((str(self._program), str(self._file), *self._threads), self._log)
        for count, figures in json.loads(lines[-1]).items():
            self.limits[int(count)] = Limits(**figures).better_of(self.limits.get(int(count)))


def run_program(argv: Sequence[str], log: Path) -> list[str]:
    """Runs a measuring program, or the compiler that makes it, and gives what it printed."""
    lines: list[str] = []
    if run_tool(argv, log=log, on_line=lines.append) != 0:
        raise ToolchainError(f"'{Path(argv[0]).name}' failed while the machine was measured: {' '.join(lines[-3:])}")
    return lines


def forget(*files: Path) -> None:
    """Drops files from the page cache, so that they are read from disk as on a server.

    What a process has just written lies there in large pieces, which newer kernels map with 2 MB pages.
    """
    for file in files:
        if file.exists() and hasattr(os, "posix_fadvise"):
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cpu_name() -> str:
    """The model name that the kernel knows, with the number of usable cores."""
    cores = len(os.sched_getaffinity(0))
    name = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            name = value.strip()
            break
    return f"{name}, {cores} core{'' if cores == 1 else 's'}"
