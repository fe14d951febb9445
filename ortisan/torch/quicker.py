"""Graphs so small that eager is faster: a call of a session costs some microseconds, whatever it computes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ortisan.torch.direct import Traced

_WARM = 5
"""Calls before anything is timed."""
_ROUNDS = 5
_LONGEST = 1e-3
"""Seconds of a call above which what a session costs does not count."""
_GAIN = 0.95
"""What eager has to stay below to take over."""


class Quicker:
    """Calls `compiled`, and `eager` from some time on if that is faster for what is computed here.

    Both are timed once, in turn, on the arguments of one call: `_WARM` calls after the first, if they took less than a
    millisecond. A graph that changes its arguments, draws random numbers or runs eager anyway is not timed.
    """

    def __init__(self, compiled: Callable[..., Any], eager: Callable[..., Any], traced: Traced) -> None:
        self._compiled, self._eager, self._traced = compiled, eager, traced
        self._calls = 0
        self._chosen: Callable[..., Any] | None = None
        self._limits: list[tuple[int, int]] = []
        """Arguments that are sizes, and their values when eager was found faster. Above them it may not be."""

    def __call__(self, *args: Any) -> Any:
        if self._chosen is None:
            return self._watched(args)
        for index, limit in self._limits:
            if args[index] > limit:
                return self._compiled(*args)
        return self._chosen(*args)

    def _watched(self, args: Sequence[Any]) -> Any:
        self._calls += 1
        if self._calls <= _WARM:
            return self._compiled(*args)
        start = time.perf_counter()
        result = self._compiled(*args)
        took = time.perf_counter() - start
        if not self._traced.is_pure or self._traced.draws() or took > _LONGEST * _ROUNDS:
            self._chosen = self._compiled
        elif took <= _LONGEST:
            self._choose(args)
        return result

    def _choose(self, args: Sequence[Any]) -> None:
        times: dict[Callable[..., Any], float] = {}
        for _ in range(_ROUNDS):
            for call in (self._compiled, self._eager):
                start = time.perf_counter()
                call(*args)
                times[call] = min(times.get(call, _LONGEST), time.perf_counter() - start)
        if times[self._eager] < _GAIN * times[self._compiled]:
            self._limits = [(index, arg) for index, arg in enumerate(args) if isinstance(arg, int)]
            self._chosen = self._eager
        else:
            self._chosen = self._compiled
