"""Times several runtimes in one process, in turns, without one being in another's way.

A runtime's idle threads spin for a while after a run, in the hope of the next. Next to another runtime they would take
its cores, and without them a runtime is slower than it is in use. So each runs several times in a row, the first time
untimed, and between two runtimes the process waits until it uses no CPU any more. The order is drawn anew each round.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_BURST_SECONDS = 0.01
_SHORTEST_BURST = 3
_LONGEST_BURST = 50
_WARM_SECONDS = 0.002
_MOST_ROUNDS = 100

_STEP_SECONDS = 0.002
_BUSY_SHARE = 0.1
_PATIENCE_SECONDS = 0.5


@dataclass(frozen=True)
class Effort:
    """How long to measure: about `seconds` for all that take turns, but `rounds` rounds at least."""

    seconds: float
    rounds: int


def take_turns(runs: Mapping[str, Callable[[], Any]], effort: Effort) -> dict[str, list[float]]:
    """Milliseconds of each timed run of each."""
    bursts = {name: _burst_length(run) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    draw = random.Random(0)
    order = list(runs)
    start = time.perf_counter()
    gc.collect()
    gc.disable()
    try:
        for number in range(_MOST_ROUNDS):
            if number >= effort.rounds and time.perf_counter() - start > effort.seconds:
                break
            draw.shuffle(order)
            for name in order:
                wait_for_quiet()
                times[name] += _burst(runs[name], bursts[name])
    finally:
        gc.enable()
    return times


def wait_for_quiet() -> None:
    """Returns when this process's threads are idle, or after half a second."""
    deadline = time.perf_counter() + _PATIENCE_SECONDS
    used = time.process_time()
    while time.perf_counter() < deadline:
        time.sleep(_STEP_SECONDS)
        now = time.process_time()
        if now - used < _BUSY_SHARE * _STEP_SECONDS:
            return
        used = now


def best_and_median(times: list[float]) -> tuple[float, float]:
    return min(times), statistics.median(times)


def _burst_length(run: Callable[[], Any]) -> int:
    wait_for_quiet()
    run()
    (once,) = _burst(run, 1)
    return min(max(int(1e3 * _BURST_SECONDS / once), _SHORTEST_BURST), _LONGEST_BURST)


def _burst(run: Callable[[], Any], count: int) -> list[float]:
    warm = time.perf_counter() + _WARM_SECONDS
    run()
    while time.perf_counter() < warm:
        run()
    times = []
    for _ in range(count):
        before = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - before))
    return times
