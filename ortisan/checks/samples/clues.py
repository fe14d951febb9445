"""What a refusal says about the sizes: numbers out of ONNX Runtime's messages, or out of shapes that don't fit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["small", "range", "equal", "differ", "multiple", "declared", "unknown"]


@dataclass(frozen=True)
class Clue:
    """Why sizes were refused.

    small     (size, the least that would do): something is too short
    range     an index is outside of its table: the table is too short, or what the indices count is too long
    equal     (size, expected): a dim has to be a certain number
    differ    sizes that would have to be the same
    multiple  (elements, unit): elements can't be divided into groups of this many
    declared  (axis, size, expected): the dim `axis` of the input `name` is declared as another number
    """

    kind: Kind
    numbers: tuple[int, ...] = ()
    name: str = ""


_DECLARED = re.compile(r"for input: (?P<name>.*?) for the following indices index: (\d+) Got: (\d+) Expected: (\d+)")
_FORMS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("differ", re.compile(r"broadcast an axis by a dimension other than 1\. (\d+) by (\d+)")),
    ("differ", re.compile(r"mismatched dimensions of (\d+) and (\d+)")),
    ("equal", re.compile(r"Got:? ?(\d+),? [Ee]xpected:? ?(\d+)")),
    ("equal", re.compile(r"W\.?(?:input_size|shape)\S* (?:was|of) (\d+).*?[Ee]xpected (\d+)")),
    ("small", re.compile(r"pre-pad \((\d+)\) exceeds maximum allowed \((\d+)\)")),
    ("small", re.compile(r"post-pad \((\d+)\) exceeds maximum allowed \((\d+)\)")),
    (
        "small",
        re.compile(r"requires axis length|Invalid input shape|window_size <= signal_size"),
    ),
    ("range", re.compile(r"idx=-?\d+ must be within the inclusive range|out of data bounds|index out of range")),
    ("multiple", re.compile(r"cannot be reshaped to the requested shape")),
)
_SHAPES = re.compile(r"Input shape:\{([\d,]+)\}, requested shape:\{([-\d,]+)\}")
_BRACES = re.compile(r"shape:? ?\{([\d,]+)\}.*?(?:Actual|[Gg]ot|compatible with):? ?\{([\d,]+)\}")
_NODE = re.compile(r"Name:'([^']*)'")


def read_clue(message: str) -> Clue:
    """The clue in a message of ONNX Runtime."""
    if declared := _DECLARED.search(message):
        numbers = tuple(int(number) for number in declared.groups()[1:])
        return Clue("declared", numbers, declared.group("name"))
    for kind, form in _FORMS:
        if (found := form.search(message)) is None:
            continue
        numbers = tuple(int(number) for number in found.groups())
        if kind == "small" and numbers:
            return Clue(kind, (numbers[1] + 1, numbers[0] + 1))
        if kind == "multiple":
            numbers = _reshaped(message)
            return Clue("small", (0, 1)) if numbers[:1] == (0,) else Clue(kind, numbers)
        return Clue(kind, numbers)
    if braces := _BRACES.search(message):
        expected, actual = ([int(number) for number in text.split(",") if number] for text in braces.groups())
        pairs = [pair for pair in zip(actual, expected, strict=False) if pair[0] != pair[1]]
        if len(actual) == len(expected) and len(pairs) == 1:
            return Clue("differ", pairs[0])
    return Clue("unknown")


def node_in(message: str) -> str:
    """The name of the innermost node that a message speaks of."""
    names: list[str] = _NODE.findall(message)
    return names[-1] if names else ""


def _reshaped(message: str) -> tuple[int, ...]:
    shapes = _SHAPES.search(message)
    if shapes is None:
        return ()
    before, after = ([int(number) for number in text.split(",") if number] for text in shapes.groups())
    return math.prod(before), math.prod(number for number in after if number > 0)
