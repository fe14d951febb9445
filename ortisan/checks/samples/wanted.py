"""The sizes that one would like to see a model at, case by case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ortisan.checks.samples.growth import Growth
from ortisan.checks.samples.roles import Roles

CASES = 4
_BATCHES = (1, 2, 3, 1)
_LENGTHS = ((1, 1, 1, 1), (7, 11, 5, 13), (17, 3, 29, 19), (67, 31, 37, 41))
"""Sizes of dims of no known role; adjacent dims differ."""
_SIDES = ((64, 64), (96, 64), (64, 128), (107, 75))
_DURATIONS = (16000, 8000, 4000, 12345)

_TIMED_LENGTH = 128
_TIMED_DURATION = 16000
_TIMED_BATCH = 16
_SHORT = 4
"""How many times shorter a short item is."""
TIMED_SIDES = (640, 512, 480, 416, 384, 320, 256, 224, 192, 160, 128, 96, 64)

Clamp = Callable[[str, int], int]


class Wanted:
    """Sizes for the symbols of one model. `clamp` keeps a size inside the caller's bounds; `ascending` names dims that
    the model requires in this order.
    """

    def __init__(
        self, symbols: Sequence[str], roles: Roles, growth: Growth, ascending: Sequence[str], clamp: Clamp
    ) -> None:
        self._symbols, self._roles, self._growth = symbols, roles, growth
        self._ascending, self._clamp = ascending, clamp
        known = {*roles.leading, *roles.sides, *roles.durations}
        self._others = [name for name in symbols if name not in known]

    @property
    def has_only_a_batch(self) -> bool:
        return set(self._symbols) <= self._roles.leading

    def case(self, number: int, *, long_batch: bool = False) -> dict[str, int]:
        """The sizes of one case. With `long_batch`, a batch that is the only free dim is taken for a length."""
        row = _LENGTHS[number]
        sizes = dict.fromkeys(self._roles.leading, _BATCHES[number])
        others = list(self._symbols) if long_batch and self.has_only_a_batch else self._others
        sizes |= {name: row[index % len(row)] for index, name in enumerate(others)}
        sizes |= {name: _SIDES[number][index % 2] for index, name in enumerate(self._roles.sides)}
        sizes |= dict.fromkeys(self._roles.durations, _DURATIONS[number])
        sizes |= self._ordered(sizes)
        return {name: self._clamp(name, sizes[name]) for name in self._symbols}

    def timed(self, side: int = TIMED_SIDES[0]) -> dict[str, int]:
        """One item of a size that is used in earnest. A decoder with a cache gets a single step."""
        single = {*self._roles.leading, *self._ascending[:1], *self._growth.new}
        sizes = {name: 1 if name in single else _TIMED_LENGTH for name in self._symbols}
        sizes |= dict.fromkeys(self._roles.sides, side)
        sizes |= dict.fromkeys(self._roles.durations, _TIMED_DURATION)
        return {name: self._clamp(name, sizes[name]) for name in self._symbols}

    def timed_batch(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Several items of these sizes at once."""
        return {
            name: self._clamp(name, _TIMED_BATCH if name in self._roles.leading else size)
            for name, size in sizes.items()
        }

    def timed_short(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """A smaller item, one at a time."""
        return {name: self._clamp(name, max(1, size // _SHORT)) for name, size in sizes.items()}

    def _ordered(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes of dims that the model requires in ascending order."""
        names = [name for name in self._ascending if name in sizes]
        return dict(zip(names, sorted(sizes[name] for name in names), strict=True))
