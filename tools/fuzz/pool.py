"""Runs mutants in processes of their own: many in each, a new one when it dies or hangs."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.fuzz.outcome import Outcome, from_json

_ROOT = Path(__file__).parents[2]
_MOST_OF_ONE = 250
"""Mutants that one process tries, so that what it leaks is bounded."""


@dataclass(frozen=True)
class Plan:
    """Which mutants to try, and when to build one."""

    seed: int
    indices: Iterable[int]
    build_every: int = 10
    """Every so many mutants one is built, and so is one that compiles to an op with types that were not built yet."""
    most_builds: int | None = None
    seconds: float = 60.0
    """How long a mutant may take."""
    models: Path | None = None


class _Died(Exception):
    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


class _Process:
    def __init__(self, plan: Plan) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        (self.folder / "tmp").mkdir()
        argv = [sys.executable, "-m", "tools.fuzz.worker", str(self.folder), str(plan.seed)]
        argv += [str(plan.models)] if plan.models else []
        environment = {**os.environ, "TMPDIR": str(self.folder / "tmp"), "PYTHONPATH": str(_ROOT)}
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
            cwd=_ROOT, start_new_session=True,
        )  # fmt: skip
        self.tried = 0

    def ask(self, index: int, *, build: bool, seconds: float) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.tried += 1
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"index": index, "build": build}).encode() + b"\n")
            self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not ready:
            raise _Died(Outcome("hang", f"no end within {seconds:.0f} s ({'build' if build else 'inspect'})"))
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            how = signal.Signals(-code).name if code < 0 else f"code {code}"
            raise _Died(Outcome("signal", f"{how} in {'build' if build else 'inspect'}"))
        return from_json(json.loads(line))

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


class Pool:
    """Tries mutants on as many threads as there are processes."""

    def __init__(self, plan: Plan, processes: int) -> None:
        self._plan, self._processes = plan, processes
        self._lock = threading.Lock()
        self._seen: set[str] = set()
        self.builds = 0

    def run(self, done: Callable[[int, Outcome], None]) -> None:
        """Calls `done` with each mutant's outcome, one at a time."""
        numbers = iter(self._plan.indices)
        with ThreadPoolExecutor(self._processes) as threads:
            for each in [threads.submit(self._work, numbers, done) for _ in range(self._processes)]:
                each.result()

    def _work(self, numbers: Iterator[int], done: Callable[[int, Outcome], None]) -> None:
        process: _Process | None = None
        try:
            while True:
                with self._lock:
                    index = next(numbers, None)
                if index is None:
                    return
                if process is not None and process.tried >= _MOST_OF_ONE:
                    process.end()
                    process = None
                process = process or _Process(self._plan)
                try:
                    outcome = self._try(process, index)
                except _Died as died:
                    outcome = died.outcome
                    process.end()
                    process = None
                with self._lock:
                    done(index, outcome)
        finally:
            if process is not None:
                process.end()

    def _try(self, process: _Process, index: int) -> Outcome:
        outcome = process.ask(index, build=False, seconds=self._plan.seconds)
        if outcome.kind != "compiled" or not self._is_worth_a_build(index, outcome):
            return outcome
        return process.ask(index, build=True, seconds=self._plan.seconds)

    def _is_worth_a_build(self, index: int, outcome: Outcome) -> bool:
        with self._lock:
            if self._plan.most_builds is not None and self.builds >= self._plan.most_builds:
                return False
            new = set(outcome.compiled_to) - self._seen
            worth = bool(new) or outcome.build_is_due or index % self._plan.build_every == 0
            if worth:
                self.builds += 1
                self._seen |= new
            return worth
