"""Runs the compiled graphs of an artifact value by value, and finds the first that departs from its numpy reference."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from ortisan.checks.compare import Difference, compare
from ortisan.checks.isolated import Isolated
from ortisan.checks.samples import Case
from ortisan.converter.passes.origin import origins
from ortisan.converter.substitute import substitute
from ortisan.errors import ArtifactError
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.compile import compile_source
from ortisan.pipeline.options import Options
from ortisan.pipeline.parts import boundary_values
from ortisan.pipeline.source import Source
from ortisan.registry.dtypes import Array
from ortisan.registry.evaluate import evaluate_values
from ortisan.registry.graph import Graph, Node, Value
from ortisan.runtime.artifact import Artifact


@dataclass(frozen=True)
class Departure:
    """The first value of the op graph that is not what its op's reference computes."""

    op: str
    value: str
    op_name: str
    onnx_nodes: tuple[str, ...]
    case: str
    difference: Difference

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        figures = self.difference.problem or f"max abs {self.difference.max_abs:.3g}, rel {self.difference.max_rel:.3g}"
        nodes = ", ".join(self.onnx_nodes) or "none"
        return f"{self.value} = {self.op_name}(...) in {self.op} at {self.case}: {figures}; from ONNX nodes: {nodes}"


def find_departure(runner: Isolated, artifact: Artifact, source: Source, cases: Iterable[Case]) -> Departure | None:
    """Recompiles the model so that every value stays in memory, and runs it with the artifact's own weights.
    ONNX Runtime ran the model on each of the cases.

    What flows through control flow can't be seen from outside, so subgraphs in there are left out.
    """
    compiled = _compile_again(artifact, source)
    if not compiled.ops:
        return None
    trace = compiled.target.trace(compiled.plans, compiled.names)
    weights = _weights(artifact, compiled)
    plain = substitute(compiled.model, ())
    for case, values in _runs(runner, plain, compiled, cases):
        for index, subgraph in enumerate(compiled.subgraphs):
            if subgraph.scope:
                continue
            inputs = [np.asarray(values[value.name or ""]) for value in subgraph.inputs]
            expected = evaluate_values(subgraph.graph, inputs)
            found = _first_departure(subgraph.graph, trace(index, weights[index], inputs), expected)
            if found is not None:
                node, value, difference = found
                made_by = {n.name or n.op_type: origins(n) for n in subgraph.nodes}
                nodes = made_by.get(node.origin, (node.origin,))
                return Departure(compiled.ops[index], value.name, node.op.name, nodes, case, difference)
    return None


def _compile_again(artifact: Artifact, source: Source) -> Compilation:
    try:
        options = Options.from_json({**artifact.manifest["options"], "name": artifact.name})
        compiled = compile_source(source, options, tuning=artifact.manifest["tuning"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"'{artifact.folder}' can't be compiled again as its manifest says ({type(error).__name__}: {error}); "
            "build it again"
        ) from error
    returned = {index: "given back" for index, op in enumerate(compiled.ops) if op not in artifact.ops}
    compiled = compiled.without(returned) if returned else compiled
    if compiled.domain != artifact.domain:
        raise ArtifactError(
            f"'{artifact.folder}' was built from another model or by another version of Ortisan; build it again"
        )
    return compiled


def _weights(artifact: Artifact, compiled: Compilation) -> list[list[Array]]:
    """The packed weights as the artifact's model has them."""
    model = ir.load(artifact.model)
    nodes = {node.op_type: node for node in model.graph.all_nodes() if node.domain == artifact.domain}
    result = []
    for op, graph in zip(compiled.ops, compiled.graphs, strict=True):
        tensors = [value.const_value for value in nodes[op].inputs[len(graph.inputs) :] if value is not None]
        result.append([tensor.numpy() for tensor in tensors if tensor is not None])
    return result


def _runs(
    runner: Isolated, plain: ir.Model, compiled: Compilation, cases: Iterable[Case]
) -> Iterator[tuple[str, Mapping[str, Array]]]:
    """For each case what flows into the subgraphs."""
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="ortisan-values-") as folder:
            values = boundary_values(runner, plain, compiled.subgraphs, [case], Path(folder))
        yield case.label, values


def _first_departure(
    graph: Graph, actual: Mapping[Value, Array], expected: Mapping[Value, Array]
) -> tuple[Node, Value, Difference] | None:
    for node in graph.nodes:
        for value in node.outputs:
            if value in actual:
                difference = compare(actual[value], expected[value])
                if not difference.within(value.dtype, "close"):
                    return node, value, difference
    return None
