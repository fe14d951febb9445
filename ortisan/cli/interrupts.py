"""Ctrl-C and SIGTERM: the first ends the command and lets it clean up, those that follow at once don't disturb it. Who
insists for some seconds ends the process as it is."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

INTERRUPTED = 130
TERMINATED = 143
_PATIENCE_SECONDS = 5.0
_AGAIN_SECONDS = 0.01


class _State:
    """`working` from the moment on when something could be left behind; `since` is when the interrupt came, and `more`
    is how many have come after it.
    """

    working = False
    since: float | None = None
    more = 0


def handle_signals() -> None:
    """Takes over both signals. A process that was started with interrupts ignored goes on ignoring them."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _unraisable
    signal.signal(signal.SIGTERM, _terminate)


def begin_work() -> None:
    """From here on an interrupt is a `KeyboardInterrupt`; before, it ends the process at once, imports and all."""
    _State.working = True


def end_work() -> None:
    """The process is about to end, so an interrupt would change nothing but its exit code."""
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def is_interrupted() -> bool:
    return _State.since is not None


def _interrupt(signum: int, frame: Any) -> None:
    if not _State.working:
        sys.stderr.write("error: interrupted\n")
        sys.stderr.flush()
        os._exit(INTERRUPTED)
    if _State.since is None:
        _State.since = time.monotonic()
        raise KeyboardInterrupt
    _State.more += 1
    if _State.more > 1 and time.monotonic() - _State.since > _PATIENCE_SECONDS:
        signal.signal(signum, signal.SIG_DFL)
        signal.raise_signal(signum)


def _terminate(signum: int, frame: Any) -> None:
    """Ends as an interrupt does, so that nothing half-made stays behind."""
    raise SystemExit(TERMINATED)


def _unraisable(unraisable: Any) -> None:
    """An interrupt that came where Python can't raise it comes again; the rest is Python's to tell."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    _State.since = None
    main = threading.main_thread().ident or 0
    again = threading.Timer(_AGAIN_SECONDS, signal.pthread_kill, (main, signal.SIGINT))
    again.daemon = True
    again.start()
