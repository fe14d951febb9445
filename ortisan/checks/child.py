"""The child process that `isolated.py` starts: opens sessions, runs and times them on request. Imports no compiler."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections import OrderedDict
from multiprocessing.connection import Connection
from typing import Any

from ortisan.checks.session import SessionSpec
from ortisan.checks.turns import interleave
from ortisan.errors import OrtisanError
from ortisan.runtime.engine import RunFailed, run, sentence

_MOST_SESSIONS = 8
_WATCH_SECONDS = 1.0


def serve(descriptor: int, memory: int) -> None:
    """Answers requests until the parent closes the connection; `memory` bounds the private memory in bytes."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection, sessions = Connection(descriptor), _Sessions()
    while True:
        try:
            name, *arguments = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(_answer(sessions, name, arguments))


def _end_with(parent: int) -> None:
    """Ends this process when its parent is gone: a killed build leaves nothing running."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)


def _answer(sessions: _Sessions, name: str, arguments: list[Any]) -> tuple[str, Any]:
    """("ok", result), ("refused", why ONNX Runtime did not run it) or ("failed", an error of ours)."""
    try:
        return "ok", getattr(sessions, name)(*arguments)
    except RunFailed as error:
        return "refused", str(error)
    except OrtisanError as error:
        return "failed", error
    except MemoryError:
        return "refused", "memory ran out"
    except Exception as error:  # noqa: BLE001  # whatever a run raises is its answer
        return "refused", sentence(error)


class _Sessions:
    """Sessions by what they were made of; those not used for longest are closed."""

    def __init__(self) -> None:
        self._open: OrderedDict[Any, Any] = OrderedDict()

    def open(self, spec: SessionSpec, stamp: Any) -> list[str]:
        return [output.name for output in self._get(spec, stamp).get_outputs()]

    def run(self, spec: SessionSpec, stamp: Any, feeds: Any) -> tuple[list[Any], float]:
        session = self._get(spec, stamp)
        start = time.perf_counter()
        return run(session, feeds), time.perf_counter() - start

    def time(self, pairs: Any, feeds: Any, effort: Any, shared: Any) -> list[list[float]]:
        """Times after one run of each that warms up."""
        sessions = [self._get(spec, stamp) for spec, stamp in pairs]
        for session, values in zip(sessions, feeds, strict=True):
            run(session, values)
        return interleave(sessions, feeds, effort, shared=shared)

    def close(self, spec: SessionSpec, stamp: Any) -> None:
        self._open.pop((spec, stamp), None)

    def _get(self, spec: SessionSpec, stamp: Any) -> Any:
        key = (spec, stamp)
        if key not in self._open:
            while len(self._open) >= _MOST_SESSIONS:
                self._open.popitem(last=False)
            self._open[key] = spec.open()
        self._open.move_to_end(key)
        return self._open[key]
