"""Explains why a graph can't be compiled, in one sentence that names the op."""

from __future__ import annotations

import re
import warnings

from ortisan.errors import OrtisanError, UnsupportedError

_OP = re.compile(r"(?:torch\.ops\.|OpOverload\(op=['\"])(\w+\.\w+(?:\.\w+)?)")
_NOISE = re.compile(r"\x1b\[[0-9;]*m")
_MOST = 300


class WentEager(UserWarning):
    """A graph runs in eager PyTorch. Given once for each graph."""


def reason_of(error: BaseException) -> str:
    """The innermost cause of a failed export or build, with the op that it is about."""
    if isinstance(error, OrtisanError):
        return str(error)
    chain = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    op = next((found[1] for link in chain if (found := _OP.search(str(link)))), None)
    lines = [line.strip() for line in _NOISE.sub("", str(chain[-1])).splitlines() if line.strip()]
    text = (lines[0] if lines else type(chain[-1]).__name__)[:_MOST]
    return text if op is None or op in text else f"{op}: {text}"


def refuse(what: str, error: BaseException, *, strict: bool) -> None:
    """Warns once that `what` runs eager, or raises if `strict`."""
    why = reason_of(error)
    if strict:
        raise UnsupportedError(f"{what} can't be compiled: {why}") from error
    warnings.warn(f"{what} runs eager: {why}", WentEager, stacklevel=3)
