"""Finds the departing subgraphs inside of control flow, which can't be taken out of the model.

Each is run as the only custom op of the whole model.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ortisan.checks.noise import Noise
from ortisan.checks.verify import compare_session
from ortisan.converter.save import save_with_external_data
from ortisan.pipeline.convert import substitute_ops
from ortisan.pipeline.departures import Departed
from ortisan.pipeline.draft import Draft, Job
from ortisan.pipeline.manifest import rounded_floats
from ortisan.pipeline.parts import is_separable

_MOST = 16
"""Models that are tried; with more subgraphs inside of control flow, all of them are left."""


def find_departing_inside(draft: Draft, job: Job, noise: Mapping[tuple[str, str], Noise]) -> dict[int, Departed]:
    """Index of a subgraph inside of control flow -> how the model departs because of it."""
    compiled, runner = draft.compiled, job.runner
    inside = [index for index, subgraph in enumerate(compiled.subgraphs) if not is_separable(subgraph)]
    if len(inside) > _MOST:
        return dict.fromkeys(inside, Departed(f"one of the {len(inside)} custom ops in control flow departs"))
    found: dict[int, Departed] = {}
    for index in inside:
        with tempfile.TemporaryDirectory(prefix="ortisan-parts-") as folder:
            save_with_external_data(substitute_ops(compiled, {index}), Path(folder), "whole")
            session = replace(draft.session(), path=Path(folder, "whole.onnx"))
            seen = compare_session(runner, session, job.runs.expected(), rounded_floats(compiled), noise)
            runner.forget(session)
        if not seen.passed:
            found[index] = Departed(f"the model departs from ONNX Runtime because of it: {seen.why_not()}")
    return found
