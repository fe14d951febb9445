"""One model from its file to its row: draws inputs, then builds, checks and times, each in a process of its own."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.real_models.build import build, run_limited, why_ended
from benchmarks.real_models.catalog import GIVEN, Model
from benchmarks.real_models.inputs import Spec, draw
from benchmarks.real_models.results import ORT, OURS, Checked, Result, Row, read_check, read_row

_MEASURE = "benchmarks.real_models.measure"
_CHECK_SECONDS = 300
_TIME_SECONDS = 600


@dataclass(frozen=True)
class Plan:
    """`threads` is empty when nothing is timed; `rivals` are the runtimes beside ours and stock ONNX Runtime."""

    threads: tuple[int, ...]
    rivals: tuple[str, ...]
    seconds: float


def measure(
    model: Model, cases: Sequence[Mapping[str, Spec]], folder: Path, plan: Plan, say: Callable[[str], None]
) -> Result:
    """Whatever goes wrong with a model is told in its result."""
    file, artifact = folder / "models" / f"{model.name}.onnx", folder / "artifacts" / model.name
    feeds = write_feeds(model.name, cases, folder / "feeds")
    artifact.parent.mkdir(exist_ok=True)
    say("building")
    built = build(file, artifact, feeds[0] if model.inputs == GIVEN else None)
    if built.problem:
        return Result(model.name, model.kind, built)
    try:
        say("checking")
        checked, problem = _check(file, artifact, feeds)
        rows: list[Row] = []
        absent: dict[str, str] = {}
        for threads in plan.threads if not problem else ():
            say(f"timing, {threads} thread{'' if threads == 1 else 's'}")
            row, missing, problem = _time(file, artifact, feeds[0], threads, plan)
            absent |= missing
            rows += [row] if row is not None else []
    finally:
        shutil.rmtree(artifact, ignore_errors=True)
    return Result(model.name, model.kind, built, tuple(checked), tuple(rows), absent, problem)


def write_feeds(name: str, cases: Sequence[Mapping[str, Spec]], folder: Path) -> list[Path]:
    """NAME.npz, NAME__v1.npz, ...: the inputs of each case."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, specs in enumerate(cases):
        files.append(folder / f"{name}{f'__v{number}' if number else ''}.npz")
        arrays: dict[str, Any] = dict(draw(name, number, specs))
        np.savez_compressed(files[-1], **arrays)
    return files


def _check(model: Path, artifact: Path, feeds: Sequence[Path]) -> tuple[list[Checked], str]:
    found, problem = _start(["check", str(model), str(artifact), *map(str, feeds)], _CHECK_SECONDS)
    return ([] if problem else [read_check(one) for one in found]), problem


def _time(model: Path, artifact: Path, feeds: Path, threads: int, plan: Plan) -> tuple[Row | None, dict[str, str], str]:
    """Once more without the other rivals when the process dies, since it may be one of them that it dies of."""
    problem = ""
    for rivals in dict.fromkeys((plan.rivals, ())):
        names = ",".join((OURS, ORT, *rivals))
        arguments = ["time", str(model), str(artifact), str(feeds), str(threads), names, str(plan.seconds)]
        found, failure = _start(arguments, _TIME_SECONDS)
        if not failure:
            absent = dict.fromkeys(plan.rivals, problem) if problem else found["absent"]
            return read_row(found["row"]), absent, ""
        problem = failure
    return None, {}, f"timing with {threads} threads: {problem}"


def _start(arguments: Sequence[str], limit: float) -> tuple[Any, str]:
    code, printed, errors = run_limited([sys.executable, "-m", _MEASURE, *arguments], limit)
    problem = why_ended(code, errors, limit)
    lines = printed.strip().splitlines()
    if problem or not lines:
        return None, problem or "nothing was printed"
    return json.loads(lines[-1]), ""
