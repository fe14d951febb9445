"""From the sizes that one would like to those that the model takes.

Each refusal, by a dry run or by ONNX Runtime, leaves a clue for the next sizes. Where there is none, sizes shrink,
grow, become multiples, become equal (dims without a name may have to agree), and move one at a time along a ladder.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ortisan.checks.samples.clues import Clue
from ortisan.checks.samples.steer import Look, Sizes, steer

_LADDER = (1, 2, 3, 4, 5, 7, 8, 10, 16, 17, 24, 32, 48, 64, 67, 80, 96, 100, 128, 160, 192, 200, 224, 256, 320, 400)
_LONG = (480, 512, 576, 640, 768, 800, 1024, 1536, 2048, 4000, 8000, 16000, 32000, 48000)
_MULTIPLES = (2, 4, 8, 16, 32, 64, 128, 3, 5, 6, 7, 9, 10, 12, 24, 48, 100)
_LIKELY_MULTIPLES = (8, 32, 64)
_LARGEST = 1 << 17
_CLUES_IN_A_ROW = 12
_CLUES_LATER = 4
_TURNS = 20
_MOST_RUNS = 40
_MOST_RUNS_LATER = 12
_MOST_LOOKS = 100


@dataclass(frozen=True)
class Aim:
    """What sizes are looked for: a case to compare on, with a padded mask or without, or one to time."""

    kind: Literal["case", "timed"]
    number: int = 0
    padded: bool = False


class Search:
    """Finds sizes of one model for one case after the other, and remembers what it learned.

    `look` is a dry run. Sizes that are asked for again were refused; `refused` says why.
    """

    def __init__(
        self, symbols: Sequence[str], leading: frozenset[str], clamp: Callable[[str, int], int], shapes: Sequence[Shape]
    ) -> None:
        self._symbols, self._clamp, self._shapes = symbols, clamp, shapes
        self._leading = frozenset() if set(symbols) <= leading else leading
        self._known_bad: set[tuple[int, ...]] = set()
        self.unfit: list[Sizes] = []
        """What was refused, by a dry run or by a run."""
        self._accepted: dict[Aim, Sizes] = {}
        self._pending: tuple[Aim, Sizes] | None = None
        self._failed: tuple[Sizes, Clue] = {}, Clue("unknown")
        self._deepest: tuple[int, Sizes] = -1, {}

    def sizes(self, aim: Aim, wanted: Mapping[str, int], look: Callable[[Sizes], Look]) -> Iterator[Sizes]:
        """Yields the sizes to try, until the caller stops: what it stopped at is taken for accepted.

        Asked for the same aim again, it begins with what was accepted.
        """
        self._settle()
        if aim in self._accepted:
            yield from self._try(aim, self._accepted.pop(aim))
        anchor = next(iter(self._accepted.values()), None)
        most, runs, looks = _MOST_RUNS_LATER if anchor else _MOST_RUNS, 0, 0
        seen = self._known_bad | {
            self._key(sizes)
            for other, sizes in self._accepted.items()
            if (other.kind, other.padded) == ("case", aim.padded) and aim.kind == "case"
        }
        for sizes in self._candidates(dict(wanted), anchor, look):
            key = self._key(sizes)
            if key in seen:
                continue
            seen.add(key)
            looks += 1
            found = look(sizes)
            if found.clue is not None:
                self.unfit.append(sizes)
                self._failed = sizes, found.clue
                self._deepest = max(self._deepest, (found.depth, sizes), key=lambda item: item[0])
            elif found.affordable:
                runs += 1
                yield from self._try(aim, sizes)
            if runs >= most or looks >= _MOST_LOOKS:
                break
        if not runs and not anchor:
            for sizes in self._unguided(dict(wanted)):
                if look(sizes).affordable and self._key(sizes) not in self._known_bad:
                    yield from self._try(aim, sizes)

    def refused(self, sizes: Mapping[str, int], clue: Clue, depth: int) -> None:
        """Notes why a run at these sizes failed."""
        self._failed = dict(sizes), clue
        self._deepest = max(self._deepest, (depth, dict(sizes)), key=lambda item: item[0])
        self._note(dict(sizes))
        if self._pending is not None and self._key(self._pending[1]) == self._key(sizes):
            self._pending = None

    def accepted(self) -> list[Sizes]:
        self._settle()
        return list(self._accepted.values())

    def accepted_for(self, aim: Aim) -> Sizes | None:
        self._settle()
        return self._accepted.get(aim)

    def _try(self, aim: Aim, sizes: Sizes) -> Iterator[Sizes]:
        self._settle()
        self._pending = aim, sizes
        self._failed = sizes, Clue("unknown")
        yield dict(sizes)
        self._pending = None
        self._note(sizes)

    def _note(self, sizes: Sizes) -> None:
        if self._key(sizes) not in self._known_bad:
            self._known_bad.add(self._key(sizes))
            self.unfit.append(sizes)

    def _settle(self) -> None:
        """The last sizes were not asked to be replaced, so they were accepted."""
        if self._pending is not None:
            aim, sizes = self._pending
            self._accepted[aim] = sizes
            self._pending = None

    def _key(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(sizes[name] for name in self._symbols)

    def _inside(self, sizes: Mapping[str, int]) -> Sizes:
        return {name: self._clamp(name, size) for name, size in sizes.items()}

    def _others(self, sizes: Mapping[str, int]) -> list[str]:
        return [name for name in sizes if name not in self._leading]

    def _candidates(self, wanted: Sizes, anchor: Sizes | None, look: Callable[[Sizes], Look]) -> Iterator[Sizes]:
        yield wanted
        if anchor is not None:
            yield from self._clued(_CLUES_LATER, ("range",))
            yield from self._near(wanted, anchor)
            return
        yield from self._clued()
        yield from self._steered(wanted, look)
        yield from self._halved(wanted)
        yield from self._equal((4, 2, 1), wanted)
        yield from self._multiples(wanted)
        yield from self._grown(wanted)
        yield from self._clued()
        yield from self._equal((*_LADDER, *_LONG), wanted)
        yield from self._one_at_a_time(wanted)

    def _steered(self, wanted: Sizes, look: Callable[[Sizes], Look]) -> Iterator[Sizes]:
        """One dim after the other moved until the model gets through. A leading dim may be no batch; it comes last."""
        names = sorted(wanted, key=lambda name: name in self._leading)
        sizes = wanted
        for _ in range(_TURNS):
            further = steer(sizes, names, self._inside, look)
            if further is None:
                return
            yield further
            sizes = further

    def _near(self, wanted: Sizes, anchor: Sizes) -> Iterator[Sizes]:
        """Sizes between those that are wanted and those that ran before."""
        batch = {name: size for name, size in wanted.items() if name in self._leading}
        yield {**wanted, **{name: anchor[name] for name in batch}}
        halves = self._halved(wanted)
        yield from itertools.islice(halves, 2)
        yield from self._multiples(wanted, _LIKELY_MULTIPLES)
        if len(wanted) > len(batch) + 1:
            yield from ({**anchor, **batch, name: wanted[name]} for name in self._others(wanted))
        yield {**anchor, **batch}
        yield from ({**anchor, name: wanted[name]} for name in self._others(wanted))
        yield from halves
        yield from (self._inside({**anchor, name: anchor[name] + wanted[name]}) for name in batch)
        yield from (self._inside({**anchor, name: anchor[name] // 4}) for name in self._others(wanted))
        yield dict(anchor)

    def _unguided(self, wanted: Sizes) -> Iterator[Sizes]:
        """A few sizes for a model that dry runs refuse and ONNX Runtime may take."""
        yield wanted
        yield from self._equal((64, 16, 1), wanted)

    def _clued(self, most: int = _CLUES_IN_A_ROW, ignored: Sequence[str] = ()) -> Iterator[Sizes]:
        for _ in range(most):
            sizes, clue = self._failed
            if clue.kind in ignored:
                return
            for better in self._answers(sizes, clue):
                yield better
                if self._failed[0] is not sizes:
                    break
            else:
                return

    def _answers(self, sizes: Sizes, clue: Clue) -> Iterator[Sizes]:
        """What a clue says about the sizes that were refused."""
        if clue.kind in ("small", "range"):
            yield from self._longer(sizes, clue.numbers)
        elif clue.kind == "declared":
            axis, _, expected = clue.numbers
            for shape in self._shapes:
                if shape.name == clue.name and axis < len(shape.symbols) and shape.symbols[axis] in sizes:
                    yield self._inside({**sizes, shape.symbols[axis]: expected})
        elif clue.kind in ("equal", "differ") and len(clue.numbers) > 1:
            yield from self._replaced(sizes, clue.numbers[0], clue.numbers[1])
            if clue.kind == "differ":
                yield from self._replaced(sizes, clue.numbers[1], clue.numbers[0])

    def _longer(self, sizes: Sizes, numbers: tuple[int, ...]) -> Iterator[Sizes]:
        if len(numbers) == 2:
            size, least = numbers
            exact = [name for name in self._others(sizes) if sizes[name] == size]
            if exact and least > size:
                yield self._inside({**sizes, **dict.fromkeys(exact, least + size % 2)})
        longer = {name: 2 * sizes[name] for name in self._others(sizes)}
        if longer and max(longer.values()) <= _LARGEST:
            yield self._inside({**sizes, **longer})

    def _replaced(self, sizes: Sizes, size: int, expected: int) -> Iterator[Sizes]:
        """Sizes that are `size`, or a divisor of it, such that it would become `expected`."""
        names = [name for name in self._others(sizes) if sizes[name] == size]
        exact = names or [name for name in sizes if sizes[name] == size]
        for name in reversed(exact):
            yield self._inside({**sizes, name: expected})
        if len(exact) > 1:
            yield self._inside({**sizes, **dict.fromkeys(exact, expected)})
        for name in self._others(sizes):
            times = size // max(1, sizes[name])
            if sizes[name] > 1 and times > 1 and size % sizes[name] == 0 and expected % times == 0:
                yield self._inside({**sizes, name: expected // times})

    def _halved(self, wanted: Sizes) -> Iterator[Sizes]:
        current = wanted
        while any(size > self._clamp(name, 1) for name, size in current.items()):
            current = self._inside({name: max(1, size // 2) for name, size in current.items()})
            yield current

    def _grown(self, wanted: Sizes) -> Iterator[Sizes]:
        current = wanted
        others = self._others(wanted)
        while others and max(current[name] for name in others) < _LARGEST // 4:
            longer = {name: 4 * current[name] for name in others}
            current = {**current, **longer}
            yield self._inside(current)

    def _multiples(self, wanted: Sizes, multiples: Sequence[int] = _MULTIPLES) -> Iterator[Sizes]:
        for multiple in multiples:
            rounded = {name: math.ceil(wanted[name] / multiple) * multiple for name in self._others(wanted)}
            yield self._inside({**wanted, **rounded})

    def _equal(self, ladder: Sequence[int], wanted: Sizes) -> Iterator[Sizes]:
        for size in ladder:
            if len(wanted) > 1 or size > 4:
                yield self._inside({**wanted, **dict.fromkeys(wanted if size <= 4 else self._others(wanted), size)})

    def _one_at_a_time(self, wanted: Sizes) -> Iterator[Sizes]:
        for name in self._others(wanted):
            for size in (*_LADDER, *_LONG):
                base = self._deepest[1] or wanted
                yield self._inside({**base, name: size})


@dataclass(frozen=True)
class Shape:
    """An input and the symbol of each of its dims; empty for a number or an expression."""

    name: str
    symbols: tuple[str, ...]
