"""Builds a workload, checks that every peer computes the same, and times them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import ortisan
from benchmarks import fresh
from benchmarks.machine import forget
from benchmarks.peers import HUGE, ORT, OURS, PEERS, Opened, Subject, Unavailable
from benchmarks.results import Build, Load, Result, Row, Timed
from benchmarks.timing import Effort, best_and_median, take_turns
from benchmarks.workloads import Workload
from ortisan.checks.compare import compare, dtype_of
from ortisan.converter.read.load import load_model
from ortisan.converter.save import save_with_external_data
from ortisan.registry.dtypes import Array
from ortisan.runtime.artifact import open_artifact
from ortisan.runtime.engine import open_session, quiet_options, run

_FIGURES = "build.json"


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
    """What `folder` has of a workload of the same model is used again."""
    model = save_model(workload, folder / (workload.model or workload.name))
    place = folder / workload.key
    place.mkdir(exist_ok=True)
    feeds, ours = folder / f"{workload.name}.npz", folder / f"{workload.name}_ours.npz"
    np.savez(feeds, **workload.feeds())
    np.savez(ours, **workload.our_feeds())
    say("building")
    build = _build(workload, model, place, ours, cold=plan.cold_builds)
    subject = Subject(workload, model, workload.feeds(), open_artifact(place / "artifact"))
    forget(model.with_name("model.onnx.data"), subject.artifact.model.with_name(f"{workload.key}.onnx.data"))
    say("loading")
    load = _load(subject, feeds, ours, plan.loads)
    expected = run(open_session(model, quiet_options(optimizations="none")), subject.feeds)
    rows: list[Row] = []
    absent: dict[str, str] = {}
    for threads in plan.threads:
        say(f"timing, {threads} thread{'' if threads == 1 else 's'}")
        names = [name for name in plan.peers if name != HUGE or workload.huge]
        opened, missing = _open_all(subject, threads, names, say)
        absent |= missing
        rows.append(_time(opened, expected, threads, plan.effort))
    reads_weights = workload.huge and workload.moved_bytes > 0
    facts = (workload.name, workload.title, workload.flops, workload.moved_bytes, reads_weights)
    return Result(*facts, tuple(rows), build, load, absent)


def save_model(workload: Workload, place: Path) -> Path:
    model = place / "model.onnx"
    if not model.exists():
        place.mkdir(exist_ok=True)
        save_with_external_data(load_model(workload.make()), place, "model")
    return model


def _build(workload: Workload, model: Path, place: Path, feeds: Path, *, cold: bool) -> Build:
    """Builds the artifact in `place`, unless it is there; without `cold`, untimed and with the user's own cache."""
    artifact, figures = place / "artifact", place / _FIGURES
    cache = "in-place" if workload.capacity else "as-is"
    if not figures.exists():
        first = again = None
        if cold:
            builds = place / "cache"
            first, again = (
                fresh.measure_build(model, artifact, workload.key, feeds, cache=cache, builds=builds) for _ in range(2)
            )
        else:
            ortisan.build(model, artifact, name=workload.key, inputs=feeds, keep="all", verify=False, cache=cache)
        library = open_artifact(artifact).library
        figures.write_text(json.dumps([first, again, library.stat().st_size if library else 0]), encoding="utf-8")
    return Build(*json.loads(figures.read_text(encoding="utf-8")))


def _load(subject: Subject, feeds: Path, ours: Path, times: int) -> dict[str, Load]:
    artifact = subject.artifact
    loads = {ORT: Load(**fresh.measure_load(subject.model, None, feeds, times))}
    for name, weights in ((OURS, "mapped"), (HUGE, "huge")):
        if name == OURS or subject.workload.huge:
            entries = {f"custom_op.{op}.weights": weights for op in artifact.ops}
            loads[name] = Load(**fresh.measure_load(artifact.model, artifact.library, ours, times, entries))
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
