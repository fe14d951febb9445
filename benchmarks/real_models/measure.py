"""Checks an artifact on inputs, and times it: run as a program, because what it runs may die.

    python -m benchmarks.real_models.measure check MODEL ARTIFACT FEEDS.npz ...
    python -m benchmarks.real_models.measure time MODEL ARTIFACT FEEDS.npz THREADS RIVALS SECONDS

Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import ortisan
from benchmarks.real_models.results import Checked, Row, Timed
from benchmarks.real_models.rivals import OPENERS, Feeds, Opened, Subject, Unavailable, flat
from benchmarks.timing import Effort, best_and_median, take_turns
from ortisan.checks.compare import Difference, compare, dtype_of
from ortisan.registry.dtypes import Array
from ortisan.runtime.engine import RunFailed, open_session, quiet_options, run
from ortisan.runtime.manifest import plain

_ROUNDS = 3
_NOISE = 4.0
"""How many times the model's own noise an error may be, where that is above the tolerance."""


def check(model: Path, artifact: Path, feeds: Sequence[Path]) -> list[Checked]:
    """Compares the artifact with ONNX Runtime without optimizations on each set of inputs."""
    exact = open_session(model, quiet_options(optimizations="none"))
    optimized = open_session(model, quiet_options())
    compiled = ortisan.load(artifact, quiet_options())
    found = []
    for file in feeds:
        inputs = read_feeds(file)
        expected = flat(run(exact, inputs))
        noises = [flat(run(optimized, inputs)), flat(run(exact, nudged(inputs)))]
        shapes = {name: str(list(array.shape)) for name, array in inputs.items()}
        try:
            outputs = flat(run(compiled, inputs))
        except RunFailed as failed:
            found.append(Checked(shapes, np.inf, np.inf, 0.0, f"it does not run: {failed}"))
            continue
        found.append(judge(outputs, expected, noises, shapes))
    return found


def judge(
    outputs: Sequence[Array], expected: Sequence[Array], noises: Sequence[Sequence[Array]], shapes: dict[str, str]
) -> Checked:
    """Each output is right within the tolerance of its type, or within a few times what the model moves by itself.

    Noise that changes a shape or where NaN is can't be measured, and excuses nothing.
    """
    differences = _differences(outputs, expected)
    noise = [
        max((d.max_rel for d in (compare(moved[i], reference) for moved in noises) if not d.problem), default=0.0)
        for i, reference in enumerate(expected)
    ]
    problem = "" if len(outputs) == len(expected) else f"{len(outputs)} outputs, expected {len(expected)}"
    for i, (difference, reference) in enumerate(zip(differences, expected, strict=False)):
        noisy = not difference.problem and difference.max_rel <= _NOISE * noise[i]
        if noisy or difference.within(dtype_of(reference), "close"):
            continue
        problem = problem or f"output {i}: {difference.problem or f'off by {difference.max_abs:.1e}'}"
    return Checked(shapes, *_largest(differences), max(noise, default=0.0), problem)


def _differences(outputs: Sequence[Array], expected: Sequence[Array]) -> list[Difference]:
    return [compare(a, b) for a, b in zip(outputs, expected, strict=False)]


def _largest(differences: Sequence[Difference]) -> tuple[float, float]:
    return max((d.max_abs for d in differences), default=0.0), max((d.max_rel for d in differences), default=0.0)


def nudged(feeds: Feeds) -> dict[str, Array]:
    """The inputs, their float elements moved to the next representable number, up and down in turn.

    Whole numbers stay: they may be indices, and the next number below would be another index.
    """
    moved = {}
    for name, array in feeds.items():
        if array.dtype.kind == "f" and array.size:
            ends = np.where(np.arange(array.size) % 2, np.inf, -np.inf).reshape(array.shape).astype(array.dtype)
            moved[name] = np.where(array == np.rint(array), array, np.nextafter(array, ends))
        else:
            moved[name] = array
    return moved


def read_feeds(file: Path) -> dict[str, Array]:
    """Inputs of an .npz; strings become objects, as ONNX Runtime takes them."""
    with np.load(file) as archive:
        return {name: array.astype(object) if array.dtype.kind == "U" else array for name, array in archive.items()}


def time_all(subject: Subject, threads: int, names: Sequence[str], seconds: float) -> tuple[Row, dict[str, str]]:
    """Times the runtimes in turns; says why one of them can't take part."""
    expected = flat(run(open_session(subject.model, quiet_options(optimizations="none")), subject.feeds))
    opened: dict[str, Opened] = {}
    absent: dict[str, str] = {}
    for name in names:
        try:
            opened[name] = OPENERS[name](subject, threads)
        except Unavailable as reason:
            absent[name] = str(reason)
    errors = {name: _largest(_differences(one.arrays(one.run()), expected)) for name, one in opened.items()}
    times = take_turns({name: one.run for name, one in opened.items()}, Effort(seconds, _ROUNDS))
    timed = {name: Timed(*best_and_median(runs), len(runs), *errors[name]) for name, runs in times.items()}
    return Row(threads, timed), absent


def main(kind: str, model: str, artifact: str, *rest: str) -> Any:
    if kind == "check":
        return [asdict(one) for one in check(Path(model), Path(artifact), [Path(file) for file in rest])]
    feeds, threads, names, seconds = rest
    subject = Subject(Path(model), Path(artifact), read_feeds(Path(feeds)))
    row, absent = time_all(subject, int(threads), names.split(","), float(seconds))
    return {"row": asdict(row), "absent": absent}


if __name__ == "__main__":
    print(json.dumps(plain(main(*sys.argv[1:]))))
