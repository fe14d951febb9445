"""Chooses the blockings of matrix products: from what was remembered, by timing candidates here, or by the cost model.

The rule: a candidate is timed with one thread and with all threads of the process, and counts by the geometric mean of
its two times, relative to the cost model's blocking. That one runs twice in each race, and the difference between its
two timings estimates the noise. The best candidate wins when it is better by 2 % and by more than the noise, and is so
again in a second race against the cost model's blocking alone.
"""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ortisan.codegen.cpu.isa import Isa
from ortisan.codegen.cpu.machine import Machine, this_machine
from ortisan.codegen.cpu.tune import remember as tuning_cache
from ortisan.codegen.cpu.tune.blocking import (
    VERSION,
    Blocking,
    Problem,
    Product,
    as_numbers,
    candidates,
    distinct,
)
from ortisan.codegen.cpu.tune.choices import Choice, Chooser, Tuning, by_model
from ortisan.codegen.cpu.tune.race import Race
from ortisan.codegen.cpu.tune.timer import load_timer, render_timer
from ortisan.codegen.tools.build_cache import cache_key
from ortisan.errors import OrtisanError
from ortisan.registry.dtypes import DType

TIMED = (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)
"""Element types whose products are timed; the others are rare."""
_RACE_SECONDS = {"auto": 0.1, "full": 1.0}
_ALL_SECONDS = {"auto": 20.0, "full": math.inf}
_FIRST_SECONDS, _SECONDS_PER_MIB = 2.0, 0.25
"""What `auto` takes for a small model, and how it grows with the weights: what runs longer has more to win."""
_ANSWER = ("blocking", "seconds", "cost_model_seconds", "noise")
_MIB = 1 << 20
_MOST_WORKING_SET = 256 * _MIB


class Timer(Protocol):
    """`BuiltTimer`, or what stands in for it in tests."""

    def launches(
        self,
        *,
        type: str,
        rows: int,
        depth: int,
        columns: Sequence[int],
        blockings: Sequence[tuple[int, int, int, bool]],
    ) -> Sequence[tuple[int, int, int, bool]]: ...

    def time_products(
        self,
        *,
        type: str,
        rows: int,
        depth: int,
        columns: Sequence[int],
        blockings: Sequence[tuple[int, int, int, bool]],
        threads: int,
        copies: int,
        seconds: float,
    ) -> Sequence[float]: ...


def _read(problem: Problem, answer: Mapping[str, Any], source: Chooser) -> Choice | None:
    """A choice as the cache has it; None when it has something else."""
    try:
        blocking, seconds, model_seconds, noise = (answer[key] for key in _ANSWER)
        return Choice(problem, Blocking(*blocking), source, dict(seconds), dict(model_seconds), noise)
    except (KeyError, TypeError, ValueError):
        return None


def tune(
    products: Sequence[Product],
    *,
    mode: Literal["auto", "full"],
    isa: Isa,
    weight_bytes: int,
    version: str,
    on_progress: Callable[[str], None] | None = None,
    before_timing: Callable[[], None] | None = None,
    timer: Timer | None = None,
    machine: Machine | None = None,
) -> Tuning:
    """Chooses blockings for the products of a model with so many bytes of weights.

    `before_timing` is called once, when not all of them are remembered.
    `timer` and `machine` stand in for the real ones in tests.
    """
    machine = machine or this_machine()
    job = _Job(
        mode, isa, machine, weight_bytes, version, on_progress or (lambda _: None), before_timing or (lambda: None)
    )
    chosen: dict[Problem, Choice] = {}
    pending: set[Problem] = set()
    for product in products:
        for problem, _ in product.sizes():
            if problem in chosen:
                continue
            remembered = job.look_up(problem) if problem.dtype in TIMED else by_model(problem)
            if remembered is not None:
                chosen[problem] = remembered
            else:
                pending.add(problem)
    note = None
    if pending:
        # The quick ones come first, for the time may not suffice for all; the next build goes on with the rest.
        order = sorted(pending, key=lambda problem: (problem.work, str(problem)))
        measured, note = job.measure(order, timer)
        chosen |= {problem: measured.get(problem) or by_model(problem) for problem in order}
    return Tuning(mode, f"{machine.cpu}; {isa.name}; {machine.threads} threads", note, tuple(chosen.values()))


@dataclass(frozen=True)
class _Job:
    mode: Literal["auto", "full"]
    isa: Isa
    machine: Machine
    weight_bytes: int
    version: str
    say: Callable[[str], None]
    before_timing: Callable[[], None]

    def look_up(self, problem: Problem) -> Choice | None:
        """A choice among all candidates counts for `auto` too."""
        for mode in dict.fromkeys(("full", self.mode)):
            answer = tuning_cache.look_up(self.facts(problem, mode))
            if answer is not None and (choice := _read(problem, answer, "from cache")) is not None:
                return choice
        return None

    def remember(self, choice: Choice) -> Choice:
        answer = {key: choice.to_json()[key] for key in _ANSWER}
        kept = tuning_cache.remember(self.facts(choice.problem, self.mode), answer)
        return choice if kept == answer else _read(choice.problem, kept, "from cache") or choice

    def facts(self, problem: Problem, mode: str) -> dict[str, str]:
        """All that a choice depends on."""
        return {
            "cpu": self.machine.cpu,
            "isa": self.isa.name,
            "threads": str(self.machine.threads),
            "op": "gemm",
            "dtype": problem.dtype.value,
            "size": f"{problem.rows}x{problem.depth}x{'+'.join(map(str, problem.columns))}",
            "weights": f"{self.working_set // _MIB} MiB",
            "candidates": f"{mode} {VERSION}",
            "ortisan": self.version,
            "kernels": self.kernels,
        }

    @functools.cached_property
    def kernels(self) -> str:
        return cache_key(render_timer(self.isa))

    @property
    def working_set(self) -> int:
        """Bytes of weights that a run of the model reads, as a power of two, as far as that matters to the caches."""
        enough = min(max(64 * _MIB, 2 * self.machine.last_cache_bytes), _MOST_WORKING_SET)
        return min(1 << max(self.weight_bytes - 1, _MIB - 1).bit_length(), enough)

    @property
    def most_seconds(self) -> float:
        if self.mode == "full":
            return _ALL_SECONDS[self.mode]
        return min(_ALL_SECONDS[self.mode], _FIRST_SECONDS + _SECONDS_PER_MIB * self.weight_bytes / _MIB)

    def measure(self, problems: Sequence[Problem], timer: Timer | None) -> tuple[dict[Problem, Choice], str | None]:
        """Choices as far as they could be made, and why there are not more."""
        done: dict[Problem, Choice] = {}
        try:
            self.say("preparing to time matrix products")
            timer = timer or load_timer(self.isa, self.say)
            self.before_timing()
            end = time.monotonic() + self.most_seconds
            for number, problem in enumerate(problems):
                if time.monotonic() > end:
                    return done, f"the time was up with {len(problems) - number} sizes not timed"
                self.say(f"timing matrix products {number + 1}/{len(problems)}")
                done[problem] = self.remember(self.race(problem, timer))
        except (OrtisanError, OSError, RuntimeError, MemoryError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".;: ")
            warnings.warn(
                f"Matrix products can't be timed here, so the cost model chooses their blocking ({reason}); "
                "tune='off' does so without a warning.",
                stacklevel=2,
            )
            return done, reason
        return done, None

    def race(self, problem: Problem, timer: Timer) -> Choice:
        tried = candidates(problem, self.mode)
        launches = timer.launches(**_size(problem), blockings=[as_numbers(blocking) for blocking in tried])
        model, *others = distinct(tried, launches)
        race = self.times(problem, (model, *others), timer)
        winner = race.winner()
        if winner != model:
            race = self.times(problem, (model, winner), timer)
            winner = race.winner()
        return Choice(problem, winner, "measured", race.seconds(winner), race.seconds(model), round(race.noise(), 4))

    def times(self, problem: Problem, blockings: Sequence[Blocking], timer: Timer) -> Race:
        """Times the first blocking at both ends."""
        times: dict[int, Sequence[float]] = {}
        for threads in sorted({1, self.machine.threads}):
            times[threads] = timer.time_products(
                **_size(problem),
                blockings=[as_numbers(blocking) for blocking in (*blockings, blockings[0])],
                threads=threads,
                copies=max(1, self.working_set // max(1, problem.weight_bytes)),
                seconds=_RACE_SECONDS[self.mode],
            )
        return Race(tuple(blockings), times)


def _size(problem: Problem) -> dict[str, Any]:
    """A problem as the timer takes it."""
    columns = list(problem.columns)
    return {"type": problem.dtype.value, "rows": problem.rows, "depth": problem.depth, "columns": columns}
