"""Times a compiled model against stock ONNX Runtime with all its optimizations, run by run in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ortisan.checks.samples import Case
from ortisan.errors import OptionError
from ortisan.runtime.engine import Feeds, RunFailed, caller, onnxruntime, run

RIVALS = ("ort",)
_SECONDS = 2.0
_CLEAR_AFTER_SECONDS = 0.5
_FEWEST_RUNS = 5
_FEWEST_CLEAR_RUNS = 3
_MOST_RUNS = 200


@dataclass(frozen=True)
class Timing:
    """Milliseconds per run."""

    best: float
    median: float


@dataclass(frozen=True)
class Bench:
    """Timings of a compiled model and of ONNX Runtime; `ratio` is the speedup over ONNX Runtime, by medians."""

    case: str
    threads: int | None
    runs: int
    compiled: Timing
    ort: Timing
    against: str

    @property
    def ratio(self) -> float:
        return self.ort.median / self.compiled.median if self.compiled.median > 0 else 1.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}

    def __repr__(self) -> str:
        return (
            f"Bench({self.case}: {self.compiled.median:.3g} ms, ONNX Runtime {self.ort.median:.3g} ms, "
            f"{self.ratio:.2f} times as fast)"
        )


def check_rivals(against: str) -> None:
    for name in against.split(","):
        if name not in RIVALS:
            raise OptionError(f"can't time against '{name}'; choose from: {', '.join(RIVALS)}")


def time_pair(
    compiled: Any,
    stock: Any,
    cases: Iterable[Case],
    *,
    threads: int | None = None,
    runs: int | None = None,
    limit: float | None = None,
    shared: Mapping[str, str] | None = None,
) -> Bench:
    """Times two sessions on the first inputs that both accept, for about two seconds unless `runs` is given.

    With `limit`, timing stops early once every run agrees on whether the compiled model takes more than `limit` times
    as long. `shared` maps inputs that both sessions update in place to their outputs.
    """
    sessions = (compiled, stock)
    case = _first_accepted(sessions, cases)
    ours, theirs = interleave(sessions, (case.feeds, case.feeds), runs=runs, limit=limit, shared=shared)
    version = f"onnxruntime {onnxruntime().__version__}, all optimizations"
    return Bench(case.label, threads, len(ours), _timing(ours), _timing(theirs), version)


def interleave(
    sessions: Sequence[Any],
    feeds: Sequence[Feeds],
    *,
    runs: int | None = None,
    limit: float | None = None,
    shared: Mapping[str, str] | None = None,
) -> list[list[float]]:
    """Returns the milliseconds of each run of each session. Runs alternate, so that background load hits all sessions
    alike.

    `runs`, `limit` and `shared` are those of `time_pair`. Both sessions must have run on these inputs before.
    """
    calls = [caller(session, values, shared or {}) for session, values in zip(sessions, feeds, strict=True)]
    times: list[list[float]] = [[] for _ in sessions]
    start = time.perf_counter()
    for number in range(runs if runs is not None else _MOST_RUNS):
        if runs is None and _is_enough(times, time.perf_counter() - start, limit):
            break
        order = range(len(sessions)) if number % 2 == 0 else reversed(range(len(sessions)))
        for index in order:
            before = time.perf_counter()
            calls[index]()
            times[index].append(1e3 * (time.perf_counter() - before))
    return times


def _is_enough(times: Sequence[Sequence[float]], seconds: float, limit: float | None) -> bool:
    """Whether time is up or the verdict is clear. Calling a model slower takes more runs, because that has
    consequences.
    """
    runs = len(times[0])
    if limit is not None and seconds > _CLEAR_AFTER_SECONDS:
        slower = sum(ours > limit * theirs for ours, theirs in zip(*times, strict=True))
        if (slower == 0 and runs >= _FEWEST_CLEAR_RUNS) or (slower == runs and runs >= _FEWEST_RUNS):
            return True
    return runs >= _FEWEST_RUNS and seconds > _SECONDS


def _timing(times: Sequence[float]) -> Timing:
    return Timing(min(times), statistics.median(times))


def _first_accepted(sessions: Sequence[Any], cases: Iterable[Case]) -> Case:
    failure: RunFailed | None = None
    for case in cases:
        try:
            for session in sessions:
                run(session, case.feeds)
        except RunFailed as failed:
            failure = failed
        else:
            return case
    raise OptionError(
        f"the model rejects all sample inputs ({failure}); pass inputs that it accepts (--inputs FILE.npz, or inputs=)"
    )
