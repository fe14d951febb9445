"""Times a compiled model against stock ONNX Runtime with all its optimizations, run by run in turn."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ortisan.checks.isolated import Isolated
from ortisan.checks.samples import Case
from ortisan.checks.session import SessionSpec
from ortisan.checks.turns import Effort
from ortisan.errors import OptionError
from ortisan.runtime.engine import RunFailed, onnxruntime

RIVALS = ("ort",)


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

    @property
    def best_ratio(self) -> float:
        """The speedup by the best run of each."""
        return self.ort.best / self.compiled.best if self.compiled.best > 0 else 1.0

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
    runner: Isolated,
    compiled: SessionSpec,
    stock: SessionSpec,
    cases: Iterable[Case],
    effort: Effort | None = None,
    *,
    shared: Mapping[str, str] | None = None,
) -> Bench:
    """Times two sessions in turn on the first inputs that both accept, for about two seconds unless `effort` says else.

    `shared` maps inputs that both sessions update in place to their outputs.
    """
    failure: RunFailed | None = None
    for case in cases:
        try:
            ours, theirs = runner.time((compiled, stock), (case.feeds, case.feeds), effort or Effort(), shared=shared)
        except RunFailed as failed:
            failure = failed
            continue
        version = f"onnxruntime {onnxruntime().__version__}, all optimizations"
        return Bench(case.label, compiled.threads, len(ours), _timing(ours), _timing(theirs), version)
    raise OptionError(
        f"the model rejects all sample inputs ({failure}); pass inputs that it accepts (--inputs FILE.npz, or inputs=)"
    )


def _timing(times: Sequence[float]) -> Timing:
    return Timing(min(times), statistics.median(times))
