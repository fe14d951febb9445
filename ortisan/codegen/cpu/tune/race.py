"""Which of several timed blockings wins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ortisan.codegen.cpu.tune.blocking import Blocking

CLEARLY = 0.02
"""What a candidate must gain over the cost model's blocking: less is noise on most machines."""


@dataclass(frozen=True)
class Race:
    """Seconds by threads: one for each blocking, and a second time for the first."""

    blockings: tuple[Blocking, ...]
    times: Mapping[int, Sequence[float]]

    def winner(self) -> Blocking:
        scores = [self.score(index) for index in range(len(self.blockings))]
        # A gain with one thread is no good when it costs several threads theirs, and the other way round.
        even = [index for index in range(len(scores)) if max(self.ratios(index)) <= 1 + CLEARLY]
        best = min(even, key=scores.__getitem__, default=0)
        return self.blockings[best] if scores[best] <= 1 - max(CLEARLY, self.noise()) else self.blockings[0]

    def score(self, index: int) -> float:
        """The geometric mean of a blocking's times relative to the first blocking's."""
        ratios = self.ratios(index)
        return math.prod(ratios) ** (1 / len(ratios))

    def ratios(self, index: int) -> list[float]:
        """A blocking's times relative to the first blocking's, for each number of threads."""
        return [self._time(times, index) / self._time(times, 0) for times in self.times.values()]

    def noise(self) -> float:
        """How far the two times of the first blocking are apart."""
        return max(abs(times[0] - times[-1]) / self._time(times, 0) for times in self.times.values())

    def seconds(self, blocking: Blocking) -> dict[str, float]:
        index = self.blockings.index(blocking)
        return {str(threads): float(f"{self._time(times, index):.4g}") for threads, times in self.times.items()}

    @staticmethod
    def _time(times: Sequence[float], index: int) -> float:
        """Never 0, which a coarse clock may give."""
        return max(min(times[0], times[-1]) if index == 0 else times[index], 1e-12)
