"""How long an emulation will take."""

from __future__ import annotations

import time
from collections.abc import Callable


class Estimate:
    """How far runs of the same kernels are: "12/96, about 40 s left", once the first has shown how many there are."""

    def __init__(self, runs: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._runs, self._clock, self._begin = runs, clock, clock()
        self._done = self._each = 0

    def count(self) -> None:
        """A kernel begins."""
        self._done += 1

    def end_run(self) -> None:
        self._each = self._each or self._done

    def __str__(self) -> str:
        total = self._runs * self._each
        passed = self._clock() - self._begin
        if self._done > total:
            return f"{self._done} after {passed:.0f} s"
        left = passed * (total - self._done + 1) / max(self._done - 1, 1)
        return f"{self._done}/{total}, about {left:.0f} s left"
