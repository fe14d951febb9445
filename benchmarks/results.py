"""The figures of a run and what follows from them; to and from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.machine import Limits
from benchmarks.peers import HUGE, ORT, OURS, RIVALS


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
    reads_weights: bool
    """Whether most of the bytes moved are weights, which are in mapped or in 2 MB pages."""
    rows: tuple[Row, ...]
    build: Build
    load: Mapping[str, Load]
    absent: Mapping[str, str] = field(default_factory=dict)

    def gflops(self, row: Row) -> float | None:
        return self.flops / row.timed[OURS].best / 1e6 if self.flops else None

    def gbytes(self, row: Row, name: str = OURS) -> float | None:
        return self.moved_bytes / row.timed[name].best / 1e6 if self.moved_bytes else None


@dataclass(frozen=True)
class Report:
    command: str
    machine: str
    versions: Mapping[str, str]
    limits: Mapping[int, Limits]
    results: tuple[Result, ...]

    def share(self, result: Result, row: Row, name: str = OURS) -> float | None:
        """The part of what the machine can do at most that we use: of the FMA peak, else of the read bandwidth.

        The bandwidth is that of the pages which hold the weights, where they are most of what is read.
        """
        limits = self.limits.get(row.threads)
        if limits is None:
            return None
        if result.flops:
            return result.flops / row.timed[name].best / 1e6 / limits.gflops
        gbytes, read = result.gbytes(row, name), limits.read
        if result.reads_weights:
            read = (limits.read_2m if name == HUGE else limits.read_mapped) or read
        return gbytes / read if gbytes is not None else None

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
                    "share_huge": self.share(result, row, HUGE) if HUGE in row.timed else None,
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
    facts = {key: plain[key] for key in ("name", "title", "flops", "moved_bytes", "reads_weights", "absent")}
    return Result(**facts, rows=rows, build=Build(**plain["build"]), load=load)
