"""Builds a workload, checks that every peer computes the same, and times them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import ortisan
from benchmarks import fresh
from benchmarks.peers import HUGE, ORT, OURS, PEERS, Opened, Subject, Unavailable
from benchmarks.results import Build, Load, Result, Row, Timed
from benchmarks.timing import Effort, best_and_median, take_turns
from benchmarks.workloads import Workload
from ortisan.converter.load import load_model
from ortisan.converter.save import save_with_external_data
from ortisan.registry.dtypes import Array
from ortisan.runtime.artifact import open_artifact
from ortisan.runtime.compare import compare, dtype_of
from ortisan.runtime.engine import open_session, quiet_options, run

_FEEDS = "feeds.npz"


@dataclass(frozen=True)
class Plan:
    """What to measure. `cold_builds`: each model is built twice in new processes, first with an empty cache."""

    peers: tuple[str, ...]
    threads: tuple[int, ...]
    effort: Effort
    loads: int
    """How many new processes measure a session's load."""
    cold_builds: bool


def measure(workload: Workload, folder: Path, plan: Plan, say: Callable[[str], None]) -> Result:
    place = folder / workload.name
    place.mkdir()
    save_with_external_data(load_model(workload.make()), place, "model")
    model, feeds = place / "model.onnx", workload.feeds()
    np.savez(place / _FEEDS, **feeds)
    say("building")
    build = _build(workload.name, model, place, cold=plan.cold_builds)
    subject = Subject(workload, model, feeds, open_artifact(place / "artifact"))
    forget(model.with_name("model.onnx.data"), subject.artifact.model.with_name(f"{workload.name}.onnx.data"))
    say("loading")
    load = _load(subject, place, plan.loads)
    expected = run(open_session(model, quiet_options(optimizations="none")), feeds)
    rows: list[Row] = []
    absent: dict[str, str] = {}
    for threads in plan.threads:
        say(f"timing, {threads} thread{'' if threads == 1 else 's'}")
        names = [name for name in plan.peers if name != HUGE or workload.huge]
        opened, missing = _open_all(subject, threads, names, say)
        absent |= missing
        rows.append(_time(opened, expected, threads, plan.effort))
    return Result(workload.name, workload.title, workload.flops, workload.moved_bytes, tuple(rows), build, load, absent)


def forget(*files: Path) -> None:
    """Drops files from the page cache, so that they are read from disk as on a server.

    What a process has just written lies there in large pieces, which newer kernels map with 2 MB pages.
    """
    for file in files:
        if file.exists() and hasattr(os, "posix_fadvise"):
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _build(name: str, model: Path, place: Path, *, cold: bool) -> Build:
    """Builds the artifact in `place`; without `cold`, untimed and with the user's own cache."""
    artifact, feeds, cache = place / "artifact", place / _FEEDS, place / "cache"
    first = again = None
    if cold:
        first = fresh.measure_build(model, artifact, name, feeds, cache)
        again = fresh.measure_build(model, artifact, name, feeds, cache)
    else:
        ortisan.build(model, artifact, name=name, inputs=feeds, keep="all", verify=False)
    library = open_artifact(artifact).library
    return Build(first, again, library.stat().st_size if library else 0)


def _load(subject: Subject, place: Path, times: int) -> dict[str, Load]:
    artifact, feeds = subject.artifact, place / _FEEDS
    loads = {ORT: Load(**fresh.measure_load(subject.model, None, feeds, times))}
    for name, weights in ((OURS, "mapped"), (HUGE, "huge")):
        if name == OURS or subject.workload.huge:
            entries = {f"custom_op.{op}.weights": weights for op in artifact.ops}
            loads[name] = Load(**fresh.measure_load(artifact.model, artifact.library, feeds, times, entries))
    return loads


def _open_all(
    subject: Subject, threads: int, names: Sequence[str], say: Callable[[str], None]
) -> tuple[dict[str, Opened], dict[str, str]]:
    opened, absent = {}, {}
    for name in names:
        say(f"opening {PEERS[name].title}, {threads} thread{'' if threads == 1 else 's'}")
        try:
            opened[name] = PEERS[name].open(subject, threads)
        except Unavailable as reason:
            absent[name] = str(reason)
    return opened, absent


def _time(opened: dict[str, Opened], expected: Sequence[Array], threads: int, effort: Effort) -> Row:
    checks = {name: check_outputs(one.arrays(one.run()), expected) for name, one in opened.items()}
    times = take_turns({name: one.run for name, one in opened.items()}, effort)
    timed = {
        name: Timed(*best_and_median(runs), len(runs), max_abs_error=checks[name][0], problem=checks[name][1])
        for name, runs in times.items()
    }
    return Row(threads, timed)


def check_outputs(actual: Sequence[Array], expected: Sequence[Array]) -> tuple[float, str]:
    """The largest absolute error, and what is wrong, if anything is."""
    if len(actual) != len(expected):
        return float("inf"), f"{len(actual)} outputs, expected {len(expected)}"
    found = [(compare(a, b), dtype_of(b)) for a, b in zip(actual, expected, strict=True)]
    error = max((difference.max_abs for difference, _ in found), default=0.0)
    for difference, dtype in found:
        if not difference.within(dtype, "close"):
            return error, difference.problem or f"off by {difference.max_abs:.1e}"
    return error, ""
