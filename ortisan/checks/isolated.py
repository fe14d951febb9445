"""Runs sessions in a child process with limits, so that neither ONNX Runtime nor compiled code can end this one.

A run that is killed by a signal or does not end in time is a `RunDied`, which says so; the next request starts a new
child.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import IO, Any, Protocol

from ortisan.checks.session import SessionSpec
from ortisan.checks.turns import Effort
from ortisan.checks.work import KernelWork
from ortisan.errors import OrtisanError, ToolchainError
from ortisan.runtime.engine import Array, Feeds, RunFailed

OPEN_SECONDS = 300.0
RUN_SECONDS = 60.0
_FEWEST_BYTES = 2 << 30
_SHARE_OF_MEMORY = 0.9
_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from ortisan.checks.child import serve
serve(*map(int, sys.argv[2:]))
"""


class RunDied(RunFailed):
    """The process of a run was killed by a signal, ended by itself, or was stopped because it took too long: `hung`."""

    def __init__(self, message: str, *, hung: bool = False) -> None:
        super().__init__(message)
        self.hung = hung


@dataclass(frozen=True)
class Run:
    """The outputs of a run and how long it took."""

    outputs: list[Array]
    seconds: float
    kernels: tuple[KernelWork, ...] = ()
    """What was launched, where that is counted: by an emulator."""


class Runner(Protocol):
    """What runs sessions: a child process, or an emulator."""

    def open(self, spec: SessionSpec) -> list[str]: ...
    def run(self, spec: SessionSpec, feeds: Feeds, seconds: float = RUN_SECONDS) -> Run: ...
    def forget(self, spec: SessionSpec) -> None: ...


class Isolated:
    """A child process that opens sessions and runs them; started when it is first asked, and again when it died.

    Requests of several threads are answered one after the other. As a context manager it ends the child.
    """

    def __init__(self, memory: int | None = None) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def __enter__(self) -> Isolated:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def open(self, spec: SessionSpec, seconds: float = OPEN_SECONDS) -> list[str]:
        """Opens a session and gives the names of its outputs. Raises `ArtifactError`, or `RunDied`."""
        names: list[str] = self._ask(seconds, "open", spec, spec.stamp())
        return names

    def run(self, spec: SessionSpec, feeds: Feeds, seconds: float = RUN_SECONDS) -> Run:
        """Raises `RunFailed` when ONNX Runtime refuses, `RunDied` when the process dies or takes longer."""
        self.open(spec)
        outputs, took = self._ask(seconds, "run", spec, spec.stamp(), dict(feeds))
        return Run(outputs, took)

    def time(
        self,
        specs: Sequence[SessionSpec],
        feeds: Sequence[Feeds],
        effort: Effort,
        *,
        shared: Mapping[str, str] | None = None,
        seconds: float = OPEN_SECONDS,
    ) -> list[list[float]]:
        """Milliseconds of each run of each session, in turn. Raises as `run` does."""
        for spec in specs:
            self.open(spec)
        pairs = [(spec, spec.stamp()) for spec in specs]
        times: list[list[float]] = self._ask(seconds, "time", pairs, [dict(each) for each in feeds], effort, shared)
        return times

    def forget(self, spec: SessionSpec) -> None:
        """Closes a session, if it is open."""
        if self._child is not None:
            self._ask(OPEN_SECONDS, "close", spec, spec.stamp())

    def _ask(self, seconds: float, *request: Any) -> Any:
        with self._lock:
            if self._child is None:
                self._child = _Child(self._memory or _memory_limit())
            try:
                kind, answer = self._child.ask(request, seconds)
            except BaseException:
                self.close()
                raise
        if kind == "refused":
            raise RunFailed(answer)
        if kind == "failed":
            error: OrtisanError = answer
            raise error
        return answer


class _Child:
    def __init__(self, memory: int) -> None:
        self._connection, theirs = Pipe()
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the child
        argv = [sys.executable, "-c", _START, json.dumps(sys.path), str(theirs.fileno()), str(memory)]
        try:
            self._process = subprocess.Popen(
                argv,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                start_new_session=True,
            )
        except OSError as error:
            self._said.close()
            self._connection.close()
            raise ToolchainError(f"{sys.executable} can't be started to run models: {error.strerror}") from error
        finally:
            theirs.close()

    def ask(self, request: tuple[Any, ...], seconds: float) -> tuple[str, Any]:
        try:
            self._connection.send(request)
            if not self._connection.poll(seconds):
                raise RunDied(f"it did not end within {seconds:.0f} s", hung=True)
            answer: tuple[str, Any] = self._connection.recv()
        except (EOFError, OSError) as error:
            raise RunDied(self._how_it_ended()) from error
        return answer

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        code = self._process.poll()
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        last = f" ({lines[-1].strip()[:200]})" if lines else ""
        if code is not None and code < 0:
            return f"the process was killed by {signal.Signals(-code).name}{last}"
        return f"the process ended with code {code}{last}"

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()
        self._said.close()


def _memory_limit() -> int:
    """Most of what is free now, so that a child that takes too much fails before the machine does."""
    return max(_FEWEST_BYTES, int(_SHARE_OF_MEMORY * free_memory()))


def free_memory() -> int:
    """Bytes that can be had without swapping; a guess where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 4 << 30
