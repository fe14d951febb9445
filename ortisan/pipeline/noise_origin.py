"""Finds the node that makes a model noisy: where a difference of an ulp in the inputs grows most."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import onnx_ir as ir

from ortisan.checks.compare import compare
from ortisan.checks.expected import Expected
from ortisan.checks.isolated import Isolated
from ortisan.checks.noise import move_floats
from ortisan.checks.session import reference_session
from ortisan.converter.flops import typical_dims
from ortisan.converter.save import save_with_external_data
from ortisan.converter.substitute import substitute
from ortisan.errors import OrtisanError
from ortisan.pipeline.compilation import Compilation
from ortisan.registry.dtypes import Array
from ortisan.runtime.engine import RunFailed

_ULP = 1e-7
_VISIBLE = 1e-5
"""Relative differences below are no noise to speak of."""
_MOST_ELEMENTS = 1 << 26
"""All values of a larger model are not looked at."""


def noisiest_node(compiled: Compilation, expected: Expected, runner: Isolated) -> str | None:
    """The op and name of the node at which noise grows most, on the first inputs; None where that can't be seen."""
    model = substitute(compiled.model, ())
    values = [value for node in model.graph for value in node.outputs if _is_number(value)]
    if sum(_elements(value) for value in values) > _MOST_ELEMENTS or not expected.cases:
        return None
    known = {value.name for value in model.graph.outputs}
    model.graph.outputs.extend(value for value in values if value.name not in known)
    feeds = expected.cases[0].case.feeds
    with tempfile.TemporaryDirectory(prefix="ortisan-noise-") as folder:
        save_with_external_data(model, Path(folder), "values")
        session = reference_session(Path(folder, "values.onnx"))
        try:
            names = runner.open(session)
            plain, moved = (runner.run(session, each).outputs for each in (feeds, move_floats(feeds, 1)))
        except (OrtisanError, RunFailed):
            return None
        finally:
            runner.forget(session)
    found = {name: _relative(a, b) for name, a, b in zip(names, moved, plain, strict=True)}
    return _fastest_growth(model.graph, found)


def _fastest_growth(graph: ir.Graph, found: dict[str, float]) -> str | None:
    best, where = 1.0, None
    for node in graph:
        into = max((found.get(value.name or "", _ULP) for value in node.inputs if value is not None), default=_ULP)
        out = max((found.get(value.name or "", 0.0) for value in node.outputs), default=0.0)
        if out > _VISIBLE and out / max(into, _ULP) > best:
            best, where = out / max(into, _ULP), f"{node.op_type} '{node.name}'"
    return where


def _relative(actual: Array, expected: Array) -> float:
    return min(compare(actual, expected).max_rel, 1.0)


def _is_number(value: ir.Value) -> bool:
    return isinstance(value.type, ir.TensorType) and value.dtype is not None and value.dtype != ir.DataType.STRING


def _elements(value: ir.Value) -> int:
    return math.prod(typical_dims(value) or ())
