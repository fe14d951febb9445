"""Runs op graphs through the real AITemplate and its graph through the worker's numpy interpreter."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ortisan.codegen.ait.adapter import AitSettings, run_worker
from ortisan.codegen.ait.detect import find_aitemplate
from ortisan.codegen.ait.prepare import Prepared, prepare
from ortisan.registry.evaluate import bind_symbols, evaluate_graph
from ortisan.registry.graph import Graph

Arrays = Sequence[np.ndarray[Any, Any]]
SETTINGS = AitSettings("80")


@dataclass(frozen=True, eq=False)
class Run:
    """A graph and the sets of inputs to run it on."""

    graph: Graph
    cases: Sequence[Arrays]
    half: bool = False
    names: Sequence[str] = ()
    """What to call the outputs."""

    def prepared(self) -> Prepared:
        return prepare(self.graph, half=self.half)


@dataclass(frozen=True)
class Outcome:
    """Errors of AITemplate's graph against the op graph's reference, of each output, relative to its largest element."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    shapes: int
    ops: Mapping[str, int]

    @property
    def worst(self) -> float:
        return max(*self.before, *self.after)


def interpret_all(runs: Sequence[Run]) -> list[Outcome]:
    """One worker for all; AITemplate compiles each graph in a process of its own."""
    prepared = [run.prepared() for run in runs]
    for each in prepared:
        assert not each.refused, each.refused
    tasks = [{"mode": "check", "program": each.program.to_json()} for each in prepared]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for index, (run, each) in enumerate(zip(runs, prepared, strict=True)):
            np.savez(folder / f"data-{index}.npz", **_data(run, each))
        results = run_worker(find_aitemplate(), SETTINGS, tasks, folder)
        return [
            _outcome(run, result, folder / f"out-{i}.npz")
            for i, (run, result) in enumerate(zip(runs, results, strict=True))
        ]


def _data(run: Run, prepared: Prepared) -> dict[str, Any]:
    data = {constant.name: constant.data for constant in prepared.program.data}
    for index, case in enumerate(run.cases):
        data |= {f"{index}/i{i}_": array for i, array in enumerate(case)}
        sizes = bind_symbols(run.graph, list(case))
        data |= {f"{index}/{new}": np.array(sizes[name]) for new, name in prepared.program.sources.items()}
    return data


def _outcome(run: Run, result: Mapping[str, Any], outputs: Path) -> Outcome:
    assert not result["failures"], result["failures"]
    errors: dict[str, list[float]] = {"before": [], "after": []}
    with np.load(outputs) as made:
        for index, case in enumerate(run.cases):
            for number, want in enumerate(evaluate_graph(run.graph, list(case))):
                what = f"output {run.names[number] if run.names else number} of {run.graph.name}"
                for when, found in errors.items():
                    found.append(difference(made[f"{index}/{when}/o{number}_"], want, f"{what}, {when} the passes"))
    return Outcome(tuple(errors["before"]), tuple(errors["after"]), result["shapes"], result["ops"])


def difference(have: np.ndarray[Any, Any], want: np.ndarray[Any, Any], what: str) -> float:
    """The largest error, relative to the largest finite element; NaN and infinities must be in the same places."""
    assert (have.shape, have.dtype) == (want.shape, want.dtype), what
    if have.dtype.kind != "f":
        np.testing.assert_array_equal(have, want, err_msg=what)
        return 0.0
    a, b = have.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=what)
    np.testing.assert_array_equal(a[~finite & ~np.isnan(b)], b[~finite & ~np.isnan(b)], err_msg=what)
    scale = max(1.0, float(np.abs(b[finite]).max(initial=0.0)))
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0)) / scale
