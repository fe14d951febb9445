"""What happens when a command fails: one sentence on stderr, the same as JSON on stdout if asked for, an exit code."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

from ortisan.cli.interrupts import INTERRUPTED, is_interrupted
from ortisan.cli.screen import show_error, show_warning, write_json
from ortisan.errors import InternalError, OrtisanError

TRACEBACK = "ORTISAN_TRACEBACK"
"""Set to 1, tracebacks are shown, too."""

P = ParamSpec("P")
R = TypeVar("R")


def tidy(command: Callable[P, R]) -> Callable[P, R]:
    """Errors become one message and exit code 1; an interrupt becomes exit code 130. No traceback is shown."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        told: list[str] = []
        try:
            with warnings.catch_warnings():
                _collect_warnings(told)
                result = command(*args, **kwargs)
        except BrokenPipeError:
            raise
        except KeyboardInterrupt as error:
            _interrupted(error)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is told as a sentence
            if is_interrupted():  # whatever was interrupted made something else of it
                _interrupted(error)
            said = _foreseen(error)
            _show(warning for warning in told if _gist(str(said)) not in warning)
            fail(said, as_json=bool(kwargs.get("json")))
        _show(told)
        return result

    return run


def _interrupted(error: BaseException) -> NoReturn:
    show_error("interrupted; nothing was left behind")
    raise SystemExit(INTERRUPTED) from error


def fail(error: OrtisanError, *, as_json: bool, more: dict[str, Any] | None = None) -> NoReturn:
    """Tells an error and exits; `more` joins it on stdout."""
    if os.environ.get(TRACEBACK) == "1":
        traceback.print_exception(error)
    show_error(str(error))
    if as_json:
        with contextlib.suppress(OSError):  # the error may be that stdout can't be written
            write_json({**(more or {}), "error": describe(error)})
    raise SystemExit(1) from error


def describe(error: OrtisanError) -> dict[str, str | None]:
    report = error.report if isinstance(error, InternalError) else None
    return {"kind": type(error).__name__, "message": str(error), "report": report}


def _foreseen(error: Exception) -> OrtisanError:
    if isinstance(error, OrtisanError):
        return error
    if isinstance(error, OSError) and not isinstance(error.filename, int):
        said = OrtisanError(f"{error.filename or 'the output'} can't be written or read: {error.strerror or error}")
    else:
        from ortisan.pipeline.unforeseen import internal_error

        said = internal_error(error, sys.argv)
    said.__cause__ = error
    return said


def _collect_warnings(told: list[str]) -> None:
    """Warnings of ours are sentences to tell at the end, each once; those of libraries are for programmers."""
    package = Path(__file__).parent.parent

    def tell(message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any) -> None:
        if Path(filename).is_relative_to(package) and str(message) not in told:
            told.append(str(message))

    warnings.simplefilter("always", UserWarning)
    warnings.showwarning = tell


def _show(told: Iterable[str]) -> None:
    for warning in told:
        show_warning(warning)


def _gist(message: str) -> str:
    """What a warning would repeat of an error."""
    return message.partition("\n")[0].rstrip(".;: ")
