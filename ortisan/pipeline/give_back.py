"""keep="faster": finds the compiled subgraphs that are slower than ONNX Runtime on the same nodes."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from ortisan.checks.bench import interleave
from ortisan.checks.samples import Case
from ortisan.converter.partition import Subgraph, boundary
from ortisan.converter.save import save_with_external_data
from ortisan.converter.substitute import substitute
from ortisan.errors import OptionError
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.convert import substitute_ops
from ortisan.registry.dtypes import Array
from ortisan.runtime.engine import Feeds, RunFailed, open_session, quiet_options, register, run
from ortisan.runtime.settings import apply_settings

SLOWER = "slower than ONNX Runtime"
CLEARLY = 1.05
"""Times ONNX Runtime's time from which a subgraph counts as slower: below is noise."""


def slower_reason(ours: float, theirs: float) -> str | None:
    """Why a subgraph is given back, or None when it is not clearly slower."""
    if ours <= CLEARLY * theirs:
        return None
    return f"{SLOWER}: {ours / theirs:.2f} times its time"


def find_slower(compiled: Compilation, library: Path, cases: Iterable[Case]) -> dict[int, str]:
    """Index of a subgraph -> why it is given back. Each is timed on its own, on the values it gets in the model."""
    plain, converted = substitute(compiled.model, ()), substitute_ops(compiled)
    settings: Mapping[str, str] = compiled.target.describe(compiled.plans, compiled.options, built=True)["settings"]
    reasons: dict[int, str] = {}
    with tempfile.TemporaryDirectory(prefix="ortisan-timing-") as folder:
        values = boundary_values(plain, compiled.subgraphs, cases, Path(folder))
        for index, subgraph in enumerate(compiled.subgraphs):
            place = Path(folder, str(index))
            place.mkdir()
            sides = _extract(plain, converted, subgraph, place)
            options = quiet_options()
            apply_settings(options, [compiled.ops[index]], settings)
            register(options, library)
            reason = slower_reason(*_time(sides, options, values, compiled.target.providers))
            if reason is not None:
                reasons[index] = reason
    return reasons


def boundary_values(
    plain: ir.Model, subgraphs: Sequence[Subgraph], cases: Iterable[Case], folder: Path
) -> Mapping[str, Array]:
    """What flows into each subgraph when the model runs on the first of the inputs that it accepts."""
    model = plain.clone()
    outputs = {value.name for value in model.graph.outputs} | {value.name for value in model.graph.inputs}
    made = {value.name: value for node in model.graph for value in node.outputs}
    wanted = dict.fromkeys(value.name for subgraph in subgraphs for value in boundary(subgraph.nodes)[0])
    model.graph.outputs.extend(made[name] for name in wanted if name in made and name not in outputs)
    save_with_external_data(model, folder, "whole")
    session = open_session(folder / "whole.onnx", quiet_options(optimizations="none"))
    names = [output.name for output in session.get_outputs()]
    failure: RunFailed | None = None
    for case in cases:
        try:
            results = run(session, case.feeds)
        except RunFailed as failed:
            failure = failed
            continue
        return {**case.feeds, **dict(zip(names, results, strict=True))}
    raise OptionError(
        f"the model runs on none of the sample inputs ({failure}); give inputs (inputs=), or build with keep='all'"
    )


@dataclass(frozen=True)
class _Side:
    """A subgraph as a model of its own."""

    path: Path
    inputs: tuple[str, ...]


def _extract(plain: ir.Model, converted: ir.Model, subgraph: Subgraph, folder: Path) -> tuple[_Side, _Side]:
    """The custom op, and the nodes it stands for."""
    read, written = boundary(subgraph.nodes)
    sides = []
    for name, model, values in (("ours", converted, subgraph.inputs), ("theirs", plain, read)):
        inputs = [value.name or "" for value in values]
        graph = ir.convenience.extract(model.graph, inputs, [value.name or "" for value in written])
        part = ir.Model(graph, ir_version=model.ir_version)
        part.opset_imports.update(model.opset_imports)
        save_with_external_data(part, folder, name)
        sides.append(_Side(folder / f"{name}.onnx", tuple(inputs)))
    return sides[0], sides[1]


def _time(sides: tuple[_Side, _Side], options: Any, values: Feeds, providers: Sequence[str]) -> tuple[float, float]:
    """Medians in milliseconds; `options` are those of the custom op's session."""
    settings = (options, quiet_options())
    sessions = [open_session(side.path, each, providers) for side, each in zip(sides, settings, strict=True)]
    feeds = [{name: values[name] for name in side.inputs} for side in sides]
    for session, inputs in zip(sessions, feeds, strict=True):
        run(session, inputs)
    ours, theirs = interleave(sessions, feeds, limit=CLEARLY)
    return statistics.median(ours), statistics.median(theirs)
