"""Compares what was lowered with ONNX Runtime without building anything: op graphs evaluate in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ortisan.checks.compare import compare, compare_outputs, dtype_of
from ortisan.checks.expected import expect
from ortisan.checks.inputs import Cases
from ortisan.checks.isolated import Isolated
from ortisan.checks.session import reference_session
from ortisan.converter.partition import boundary
from ortisan.converter.save import save_with_external_data
from ortisan.converter.substitute import substitute
from ortisan.errors import OrtisanError
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.parts import is_separable
from ortisan.pipeline.source import Source
from ortisan.registry.evaluate import evaluate_graph
from ortisan.runtime.engine import RunFailed


def disagreement(file: Path, compiled: Compilation, runner: Isolated, folder: Path) -> str:
    """Where the canonical model or an op graph departs from ONNX Runtime on one sample; empty if nowhere.

    It says too much rather than too little: noise is not measured, so a build has the last word.
    """
    with Source(file) as source:
        cases = Cases(None, lambda: source.sampler({}))
        try:
            expected = expect(runner, reference_session(source.file), cases.compared(first_only=True), cases)
        except (OrtisanError, RunFailed):
            return ""
    case = expected.cases[0]
    subgraphs = [each for each in compiled.subgraphs if is_separable(each)]
    model = substitute(compiled.model, ())
    made = {value.name: value for node in model.graph for value in node.outputs}
    known = {value.name for value in (*model.graph.outputs, *model.graph.inputs)}
    ends = dict.fromkeys(value.name for each in subgraphs for side in boundary(each.nodes) for value in side)
    model.graph.outputs.extend(made[name] for name in ends if name in made and name not in known)
    save_with_external_data(model, folder, "whole")
    session = reference_session(folder / "whole.onnx")
    try:
        names = runner.open(session)
        results = runner.run(session, case.case.feeds).outputs
    except (OrtisanError, RunFailed) as failed:
        return f"the canonical model fails: {failed}"
    finally:
        runner.forget(session)
    values = {**case.case.feeds, **dict(zip(names, results, strict=True))}
    for name, theirs in zip(expected.outputs, case.results, strict=True):
        difference = compare_outputs(values.get(name), theirs)
        if difference.problem or difference.max_rel > 1e-2:
            return f"the canonical model departs in '{name}'"
    for each in subgraphs:
        inputs = [values.get(value.name or "") for value in each.inputs]
        if any(array is None for array in inputs):
            continue
        with np.errstate(all="ignore"):
            outputs = evaluate_graph(each.graph, [np.asarray(array) for array in inputs])
        for name, ours in zip(each.graph.output_names, outputs, strict=True):
            theirs = np.asarray(values[name])
            if not compare(ours, theirs).within(dtype_of(theirs), "close"):
                return f"the op graph departs in '{name}'"
    return ""
