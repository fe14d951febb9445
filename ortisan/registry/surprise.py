"""The one place that catches any exception: what nobody foresaw becomes a sentence, and its caller goes on without.

Models and libraries find errors that no list of types covers (sympy, onnx-ir, numpy, memory, recursion). A caller that
can do without a step runs it inside `surprises()` and treats `Surprise` as the reason why it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST = 200


class Surprise(Exception):
    """A step failed in a way that it does not declare. The text says how, in a few words."""


@contextmanager
def surprises(*foreseen: type[Exception]) -> Iterator[None]:
    """Raises `Surprise` in place of any exception that is not among `foreseen`. Interrupts pass."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (Surprise, *foreseen)):
            raise
        raise Surprise(in_words(error)) from error


def in_words(error: BaseException) -> str:
    """The type and the first line of the innermost cause, short enough for one sentence."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    text = lines[0][:_LONGEST] if lines else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
