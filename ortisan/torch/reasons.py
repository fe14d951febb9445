"""Explains why a graph can't be compiled, in one sentence that names the op."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import Any

from torch._dynamo.exc import ShortenTraceback

from ortisan.errors import OptionError, OrtisanError, UnsupportedError

_OP = re.compile(r"(?:torch\.ops\.|OpOverload\(op=['\"])(\w+\.\w+(?:\.\w+)?)")
_NOISE = re.compile(r"\x1b\[[0-9;]*m")
_MOST = 300
_UNKNOWN = "No ONNX function found"
"""How torch.onnx says that it does not know an op."""


class WentEager(UserWarning):
    """A graph runs in eager PyTorch. Given once for each graph."""


class NoFormError(UnsupportedError):
    """Something in a graph has no ONNX form: these ops, by name, or these nodes of the graph alone."""

    def __init__(self, reason: str, ops: Iterable[str] = (), nodes: Iterable[str] = ()) -> None:
        super().__init__(reason)
        self.ops, self.nodes = frozenset(ops), frozenset(nodes)


def no_form_of(error: BaseException) -> NoFormError:
    """What torch's exporter says, which names the op in its text only; with what would make it work."""
    chain = _chain(error)
    op = next((found[1] for link in chain if (found := _OP.search(str(link)))), None)
    if op is not None and any(_UNKNOWN in str(link) for link in chain):
        space, name = op.split(".")[:2]
        return NoFormError(
            f"{space}.{name} has no ONNX form; ortisan.torch.map_op('{space}::{name}', ...) gives it one", [op]
        )
    return NoFormError(reason_of(error), [] if op is None else [op])


def _chain(error: BaseException) -> list[BaseException]:
    """An error and its causes, the innermost last."""
    chain = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    return chain


def reason_of(error: BaseException) -> str:
    """The innermost cause of a failed export or build, with the op that it is about."""
    if isinstance(error, OrtisanError):
        return str(error)
    chain = _chain(error)
    op = next((found[1] for link in chain if (found := _OP.search(str(link)))), None)
    lines = [line.strip() for line in _NOISE.sub("", str(chain[-1])).splitlines() if line.strip()]
    text = (lines[0] if lines else type(chain[-1]).__name__)[:_MOST]
    return text if op is None or op in text else f"{op}: {text}"


def for_dynamo(error: OrtisanError) -> OrtisanError:
    """The same error in a form that dynamo lets pass: it would wrap another one, and add lines to its message."""
    kind: Any = type(error)
    plain: Any = type(kind.__name__, (kind, ShortenTraceback), {"__str__": lambda self: self.sentence})
    made: Any = plain.__new__(plain)
    made.args, made.sentence, made.first_useful_frame = error.args, str(error), None
    made.__cause__ = error.__cause__
    return made  # type: ignore[no-any-return]


def refuse(what: str, error: BaseException, *, strict: bool, place: str = "") -> None:
    """Warns once that `what` runs eager, or raises if `strict`. What the caller asked for wrongly is always raised."""
    if isinstance(error, OptionError):
        raise error
    why = reason_of(error)
    if place:
        why = f"{why} ({place})"
    if strict:
        raise UnsupportedError(f"{what} can't be compiled: {why}") from error
    warnings.warn(f"{what} runs eager: {why}", WentEager, stacklevel=3)
