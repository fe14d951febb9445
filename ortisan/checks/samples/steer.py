"""Finds the size of one dim that makes a number deep inside of a model what it has to be: moves it and looks again.

A dim that a Conv, a pool and a Reshape have been over shows at a MatMul as another number. How that number follows the
dim is not known, but it nearly always does so along a line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ortisan.checks.samples.clues import Clue

Sizes = dict[str, int]

_MOST_STEPS = 8
_TIMES = (1, 2, 3, 4)
"""Multiples of a row that a Reshape is tried with."""
_LARGEST = 1 << 17


@dataclass(frozen=True)
class Look:
    """What is known of sizes without a run: why they fail, how far the model gets, whether they can be afforded."""

    clue: Clue | None = None
    depth: int = 0
    affordable: bool = True


def steer(
    sizes: Sizes, names: Sequence[str], inside: Callable[[Mapping[str, int]], Sizes], look: Callable[[Sizes], Look]
) -> Sizes | None:
    """Sizes that get further than these, with one of the dims changed; None if none was found."""
    start = look(sizes)
    if start.clue is None or len(start.clue.numbers) != 2:
        return None
    for name in names:
        for times in _TIMES if start.clue.kind == "multiple" else (1,):
            found = _Move(sizes, name, inside, look, start, start.clue, times).go()
            if found is not None:
                return found
    return None


@dataclass(frozen=True)
class _Move:
    """One dim, moved along a line towards `times` the number that is needed."""

    sizes: Sizes
    name: str
    inside: Callable[[Mapping[str, int]], Sizes]
    look: Callable[[Sizes], Look]
    start: Look
    clue: Clue
    times: int

    def go(self) -> Sizes | None:
        at = self.sizes[self.name]
        following = max(1, at // 2) if self.clue.numbers[0] > self.times * self.clue.numbers[1] else 2 * at
        tried = {at}
        line: tuple[int, int] | None = None
        for _ in range(_MOST_STEPS):
            if not 1 <= following <= _LARGEST or following in tried:
                return None
            tried.add(following)
            better = self.inside({**self.sizes, self.name: following})
            found = self.look(better)
            if found.clue is None or found.depth > self.start.depth:
                return better
            numbers = self._have_and_need(found.clue) if found.depth == self.start.depth else None
            if numbers is None or better[self.name] != following:
                return None
            before, have, need = numbers
            size, number = line or (at, before)
            if have == number and (self.clue.kind != "small" or have):
                return None
            line = following, have
            # Nothing is left of a dim that is too short, however short it is.
            by = math.ceil((need - have) * (following - size) / (have - number)) if have != number else following
            following += by
        return None

    def _have_and_need(self, found: Clue) -> tuple[int, int, int] | None:
        """The number before the dim was moved and now, and what it should be; None where it did not follow."""
        if self.clue.kind != found.kind or len(found.numbers) != 2:
            return None
        (a, b), (c, d) = self.clue.numbers, found.numbers
        if found.kind == "differ":  # either of the two may be the one that moves
            fixed = {a, b} & {c, d}
            if len(fixed) != 1:
                return None
            need = fixed.pop()
            return (b if a == need else a), (d if c == need else c), need
        return (a, c, self._aim(b)) if b == d else None

    def _aim(self, need: int) -> int:
        return 2 * need if self.clue.kind == "small" else self.times * need
