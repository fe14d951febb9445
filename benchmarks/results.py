"""The figures of a run and what follows from them; to and from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.machine import Limits
from benchmarks.peers import ORT, OURS, RIVALS


@dataclass(frozen=True)
class Timed:
    """Milliseconds per run. `problem` is why the outputs don't count as right; such a peer is in no ratio."""

    best: float
    median: float
    runs: int
    max_abs_error: float
    problem: str = ""


@dataclass(frozen=True)
class Row:
    """One workload at one number of threads. Ratios are a peer's time divided by ours."""

    threads: int
    timed: Mapping[str, Timed]

    def ratio(self, peer: str, *, median: bool = False) -> float | None:
        ours, theirs = self.timed.get(OURS), self.timed.get(peer)
        if ours is None or theirs is None or theirs.problem:
            return None
        return theirs.median / ours.median if median else theirs.best / ours.best

    @property
    def best_peer(self) -> str | None:
        """The fastest of the others whose outputs are right."""
        right = [name for name in RIVALS if name in self.timed and not self.timed[name].problem]
        return min(right, key=lambda name: self.timed[name].best, default=None)


@dataclass(frozen=True)
class Load:
    """Opening a session in a new process, and that process's private memory after one run and before it."""

    ms: float
    private_mb: float
    base_mb: float


@dataclass(frozen=True)
class Build:
    """Seconds with an empty cache and with a filled one, where measured, and the size of the library."""

    cold: float | None
    warm: float | None
    library_bytes: int


@dataclass(frozen=True)
class Result:
    """All about one workload; `absent` is why a peer has no figures."""

    name: str
    title: str
    flops: int
    moved_bytes: int
    rows: tuple[Row, ...]
    build: Build
    load: Mapping[str, Load]
    absent: Mapping[str, str] = field(default_factory=dict)

    def gflops(self, row: Row) -> float | None:
        return self.flops / row.timed[OURS].best / 1e6 if self.flops else None

    def gbytes(self, row: Row) -> float | None:
        return self.moved_bytes / row.timed[OURS].best / 1e6 if self.moved_bytes else None


@dataclass(frozen=True)
class Report:
    command: str
    machine: str
    versions: Mapping[str, str]
    limits: Mapping[int, Limits]
    results: tuple[Result, ...]

    def share(self, result: Result, row: Row) -> float | None:
        """The part of what the machine can do at most that we use: of the FMA peak, else of the read bandwidth."""
        limits = self.limits.get(row.threads)
        if limits is None:
            return None
        if (gflops := result.gflops(row)) is not None:
            return gflops / limits.gflops
        return gbytes / limits.read if (gbytes := result.gbytes(row)) is not None else None

    @property
    def wrong(self) -> tuple[str, ...]:
        """Workloads whose outputs we get wrong."""
        return tuple(
            f"{result.title}: {row.timed[OURS].problem}"
            for result in self.results
            for row in result.rows
            if row.timed[OURS].problem
        )

    def to_json(self) -> dict[str, Any]:
        plain = asdict(self)
        for result, written in zip(self.results, plain["results"], strict=True):
            for row, figures in zip(result.rows, written["rows"], strict=True):
                figures |= {
                    "ratio_ort": row.ratio(ORT),
                    "ratio_ort_median": row.ratio(ORT, median=True),
                    "best_peer": row.best_peer,
                    "ratio_best_peer": row.ratio(row.best_peer) if row.best_peer else None,
                    "gflops": result.gflops(row),
                    "gbytes": result.gbytes(row),
                    "share": self.share(result, row),
                }
        return plain


def read_report(plain: Mapping[str, Any]) -> Report:
    """The report that `to_json` wrote."""
    return Report(
        plain["command"],
        plain["machine"],
        plain["versions"],
        {int(count): Limits(**limits) for count, limits in plain["limits"].items()},
        tuple(_read_result(result) for result in plain["results"]),
    )


def _read_result(plain: Mapping[str, Any]) -> Result:
    rows = tuple(
        Row(row["threads"], {name: Timed(**timed) for name, timed in row["timed"].items()}) for row in plain["rows"]
    )
    load = {name: Load(**figures) for name, figures in plain["load"].items()}
    facts = {key: plain[key] for key in ("name", "title", "flops", "moved_bytes", "absent")}
    return Result(**facts, rows=rows, build=Build(**plain["build"]), load=load)
