"""Finds the compiled subgraphs whose results depart from ONNX Runtime's, each by itself, and writes reproducers.

A subgraph is compared on the tensors that really flow into it, at the plain tolerance. Where its own nodes move more
than that when its inputs move by an ulp (a quantizer, a comparison), that is the bound instead: a real error can't hide
behind noise that other nodes make.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ortisan.checks.expected import Expected, ExpectedCase
from ortisan.checks.isolated import Runner
from ortisan.checks.noise import measure_noise
from ortisan.checks.samples import Case
from ortisan.checks.session import reference_session, stock_session
from ortisan.checks.verify import Verification, compare_session
from ortisan.errors import OrtisanError
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.parts import Part, Parts
from ortisan.registry.dtypes import Array
from ortisan.runtime.engine import RunFailed

FOLDER = "departures"
"""Where reproducers lie in an artifact folder."""
_MOST_CASES = 2
_AT_ONCE = 8
"""Subgraphs whose inputs are held in memory together."""


@dataclass(frozen=True)
class Departed:
    """A subgraph that fails or whose results are wrong: what was seen, and the folder of its reproducer, if any."""

    reason: str
    reproducer: Path | None = None


def find_departing(
    compiled: Compilation, library: Path, expected: Expected, runner: Runner, reproducers: Path
) -> dict[int, Departed]:
    """Index of a subgraph -> how it departs. Those that can't be run by themselves are not found here."""
    found: dict[int, Departed] = {}
    with tempfile.TemporaryDirectory(prefix="ortisan-parts-") as folder:
        parts = Parts(compiled, library, Path(folder))
        for case in expected.cases[:_MOST_CASES]:
            for index, part, values in _parts(parts, compiled, runner, case.case):
                if index not in found and (departed := _check(compiled.ops[index], part, values, runner, reproducers)):
                    found[index] = departed
    return found


def _parts(
    parts: Parts, compiled: Compilation, runner: Runner, case: Case
) -> Iterator[tuple[int, Part, Mapping[str, Array]]]:
    indices = list(range(len(compiled.ops)))
    for first in range(0, len(indices), _AT_ONCE):
        chunk = indices[first : first + _AT_ONCE]
        try:
            values = parts.values(runner, chunk, [case])
        except (OrtisanError, RunFailed):
            continue  # the simplified model itself fails, which the comparison of the whole shows
        for index in chunk:
            part = parts.part(index)
            if part is not None and {*part.our_inputs, *part.their_inputs} <= values.keys():
                yield index, part, values


def _check(op: str, part: Part, values: Mapping[str, Array], runner: Runner, place: Path) -> Departed | None:
    reference = reference_session(part.theirs)
    theirs = Case("what flows into it", part.their_feeds(values))
    ours = Case(theirs.label, part.our_feeds(values))
    try:
        done = runner.run(reference, theirs.feeds)
    except (RunFailed, OrtisanError):
        return None
    names = tuple(runner.open(reference))
    expected = Expected(names, (ExpectedCase(ours, done.outputs, done.seconds),))
    seen = compare_session(runner, part.ours, expected, part.rounded)
    if not seen.passed and not _failed_to_run(seen):
        own = Expected(names, (ExpectedCase(theirs, done.outputs, done.seconds),))
        noise = measure_noise(runner, own, [reference], [stock_session(part.theirs)])
        seen = compare_session(runner, part.ours, expected, part.rounded, noise)
    departed = None
    if not seen.passed:
        kept = _write_reproducer(place / op, part, {**theirs.feeds, **ours.feeds}, expected)
        if _failed_to_run(seen):
            (kept / "failure.txt").write_text(f"{_reason(seen)}\n", encoding="utf-8")
        else:
            with contextlib.suppress(RunFailed, OrtisanError):  # it ran before, and may not run again
                actual = runner.run(part.ours, ours.feeds).outputs
                _save_arrays(kept / "actual.npz", dict(zip(names, actual, strict=True)))
        departed = Departed(_reason(seen), kept)
    for spec in (reference, stock_session(part.theirs), part.ours):
        runner.forget(spec)
    return departed


def _failed_to_run(seen: Verification) -> bool:
    return any(not figure.dtype and not figure.passed for figure in seen.figures)


def _reason(seen: Verification) -> str:
    worst = max((figure for figure in seen.figures if not figure.passed), key=lambda each: each.difference.max_rel)
    difference = worst.difference
    if difference.problem:
        return f"it departs from ONNX Runtime in '{worst.output}': {difference.problem}"
    return (
        f"it departs from ONNX Runtime in '{worst.output}': max abs error {difference.max_abs:.3g}, relative "
        f"{difference.max_rel:.3g}"
    )


def _write_reproducer(folder: Path, part: Part, inputs: Mapping[str, Array], expected: Expected) -> Path:
    """The subgraph as a small model, its inputs, and what ONNX Runtime makes of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in part.theirs.parent.glob("theirs.onnx*"):
        shutil.copy(file, folder / file.name)
    case = expected.cases[0]
    _save_arrays(folder / "inputs.npz", inputs)
    _save_arrays(folder / "expected.npz", dict(zip(expected.outputs, case.results, strict=True)))
    return folder


def _save_arrays(file: Path, arrays: Mapping[str, Any]) -> None:
    """An .npz file, whatever the arrays are called."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, value in arrays.items():
            array = np.asarray(value)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                plain = array.astype(str) if array.dtype == object else array
                np.lib.format.write_array(member, plain, allow_pickle=False)
