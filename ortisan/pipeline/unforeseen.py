"""What nobody foresaw: any exception that is no `OrtisanError` becomes one, with a report file to send.

A report has versions, the machine, what was asked for and the traceback: no variables of the environment but ours, and
nothing of a model but its path.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ortisan._version import __version__
from ortisan.codegen.tools.cache_place import make_cache_folder
from ortisan.errors import InternalError, OrtisanError
from ortisan.pipeline.options import Options

_PACKAGES = ("onnxruntime", "onnxruntime-gpu", "onnx", "onnx-ir", "onnxscript", "numpy", "sympy", "torch")
_PACKAGE = Path(__file__).parent.parent
_MOST_TEXT = 1000
_MOST_LINES = 400
_MOST_REPORTS = 50

F = TypeVar("F", bound="Callable[..., Any]")


def raises_ortisan_errors(function: F) -> F:
    """The function, raising `OrtisanError` only; an unforeseen exception is the cause of an `InternalError`.

    What a function of the caller raises (`on_progress`, a selector) goes on as it is.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except OrtisanError:
            raise
        except Exception as error:
            if _is_from(error, kwargs.values()):
                raise
            asked = [f"ortisan.{function.__name__}", *map(_brief, args)]
            asked += [f"{name}={_brief(value)}" for name, value in kwargs.items()]
            raise internal_error(error, asked) from error

    return run  # type: ignore[return-value]


def internal_error(error: Exception, asked: Sequence[str]) -> InternalError:
    """The error to raise in place of an unforeseen one; `asked` are the words of the command or call."""
    report = _write_report(error, asked)
    said = _brief_of(error)
    if isinstance(error, MemoryError):
        said = f"memory ran out ({said}); use a larger machine, or smaller inputs"
    elif isinstance(error, OSError) and error.strerror:
        file = f"'{os.fsdecode(error.filename)}'" if isinstance(error.filename, (str, bytes)) else "a file"
        said = f"{file} can't be read or written: {error.strerror.lower()}"
    else:
        said = f"a bug in Ortisan: {said}{_place(error)}"
    return InternalError(said + (f"; please send the report {report} to its developers" if report else ""), report)


def _brief_of(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: Exception) -> str:
    """The innermost line of ours."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_relative_to(_PACKAGE) and file != Path(__file__):
            return f", in {file.relative_to(_PACKAGE)}:{frame.lineno}"
    return ""


def _is_from(error: Exception, given: Iterator[Any] | Any) -> bool:
    """Whether a function among the values given, or in a list among them, was running."""
    functions = [item for value in given for item in (value if isinstance(value, (list, tuple)) else [value])]
    codes = {getattr(getattr(each, "__func__", each), "__code__", None) for each in functions if callable(each)}
    codes |= {getattr(type(each).__call__, "__code__", None) for each in functions if callable(each)}
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_code in codes for frame in frames)


def _brief(value: object) -> str:
    """An argument, without the contents of models and arrays."""
    if value is None or isinstance(value, (str, bool, int, float, os.PathLike, Options)):
        return repr(value)[:_MOST_TEXT]
    if isinstance(value, Mapping):
        return ("{" + ", ".join(f"{key!r}: {_brief(item)}" for key, item in value.items()) + "}")[:_MOST_TEXT]
    if isinstance(value, (list, tuple)):
        return ("[" + ", ".join(map(_brief, value)) + "]")[:_MOST_TEXT]
    shape = getattr(value, "shape", None)
    return f"<{type(value).__name__}{'' if shape is None else f' {shape}'}>"[:_MOST_TEXT]


def _write_report(error: Exception, asked: Sequence[str]) -> str | None:
    """The path of a new report; None where none can be written."""
    # Whatever fails here must not hide the error that the report is about.
    with contextlib.suppress(Exception):
        text = "\n".join(_lines(error, asked)) + "\n"
        for place in _places():
            with contextlib.suppress(OSError):
                handle, name = tempfile.mkstemp(prefix="ortisan-report-", suffix=".txt", dir=place)
                with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(text)
                _forget_old(place)
                return name
    return None


def _places() -> Iterator[Path]:
    """The folders that a report may go to."""
    with contextlib.suppress(OSError):
        folder = make_cache_folder() / "reports"
        folder.mkdir(exist_ok=True)
        yield folder
    yield Path(tempfile.gettempdir())


def _lines(error: Exception, asked: Sequence[str]) -> Iterator[str]:
    yield f"ortisan {__version__}, Python {platform.python_version()}, {platform.platform()}"
    yield ", ".join(f"{name} {version}" for name in _PACKAGES if (version := _version_of(name)))
    yield f"asked: {' '.join(asked)}"
    yield from (f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("ORTISAN_"))
    lines = "".join(traceback.format_exception(error)).splitlines()
    yield from ["", *lines[:_MOST_LINES], *lines[max(_MOST_LINES, len(lines) - _MOST_LINES) :]]


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _forget_old(place: Path) -> None:
    """Keeps the newest reports."""
    reports = sorted(place.glob("ortisan-report-*.txt"), key=lambda file: file.stat().st_mtime)
    for file in reports[:-_MOST_REPORTS]:
        file.unlink(missing_ok=True)
