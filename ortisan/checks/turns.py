"""Times sessions run by run in turn, so that background load hits all of them alike. Imports no compiler."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ortisan.runtime.engine import Feeds, caller


@dataclass(frozen=True)
class Effort:
    """How long to time. With `runs` that many; else until `seconds` are over, but no fewer than `fewest` runs.

    With `limit`, timing stops after `clear` seconds if the runs tell whether the first session takes more than `limit`
    times as long as the second: when one answer leads by `fewest_clear` runs if it is no, by `fewest` if it is yes.
    `by_best` is for those who ask the best runs too: that these say no is enough then.
    """

    seconds: float = 2.0
    runs: int | None = None
    limit: float | None = None
    clear: float = 0.5
    fewest: int = 5
    fewest_clear: int = 3
    by_best: bool = False
    most: int = 200


def interleave(
    sessions: Sequence[Any],
    feeds: Sequence[Feeds],
    effort: Effort | None = None,
    *,
    shared: Mapping[str, str] | None = None,
) -> list[list[float]]:
    """Returns the milliseconds of each run of each session.

    `shared` maps inputs that the sessions update in place to their outputs. Both sessions must have run on these
    inputs before.
    """
    chosen = effort or Effort()
    calls = [caller(session, values, shared or {}) for session, values in zip(sessions, feeds, strict=True)]
    times: list[list[float]] = [[] for _ in sessions]
    start = time.perf_counter()
    for number in range(chosen.runs if chosen.runs is not None else chosen.most):
        if chosen.runs is None and _is_enough(times, time.perf_counter() - start, chosen):
            break
        order = range(len(sessions)) if number % 2 == 0 else reversed(range(len(sessions)))
        for index in order:
            before = time.perf_counter()
            calls[index]()
            times[index].append(1e3 * (time.perf_counter() - before))
    return times


def _is_enough(times: Sequence[Sequence[float]], seconds: float, effort: Effort) -> bool:
    """Whether time is up or the verdict is clear. Calling a model slower takes a longer lead, because that has
    consequences.
    """
    runs = len(times[0])
    if effort.limit is not None and seconds > effort.clear:
        slower = sum(ours > effort.limit * theirs for ours, theirs in zip(*times, strict=True))
        lead = runs - 2 * slower
        if lead >= effort.fewest_clear or -lead >= effort.fewest:
            return True
        if effort.by_best and runs >= effort.fewest and min(times[0]) <= effort.limit * min(times[1]):
            return True
    return runs >= effort.fewest and seconds > effort.seconds
