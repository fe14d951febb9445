"""Runs the compiled graphs of an artifact value by value, and finds the first that departs from its numpy reference."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from ortisan.checks.compare import Difference, compare
from ortisan.checks.samples import Case
from ortisan.codegen.cpu.plan import GraphPlan, plan_graph
from ortisan.codegen.cpu.tune.choose import Tuning
from ortisan.codegen.tools.binding import import_binding
from ortisan.converter.passes.origin import origins
from ortisan.converter.substitute import substitute
from ortisan.errors import ArtifactError, OptionError
from ortisan.pipeline.compilation import Compilation, Options, Target
from ortisan.pipeline.compile import compile_with, give_back
from ortisan.pipeline.generate import build_sources
from ortisan.pipeline.give_back import boundary_values
from ortisan.registry.dims import evaluate
from ortisan.registry.dtypes import Array
from ortisan.registry.evaluate import evaluate_values
from ortisan.registry.graph import Node, Value
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


def find_departure(artifact: Artifact, source: Any, cases: Iterable[Iterable[Case]]) -> Departure | None:
    """Recompiles the model so that every value stays in memory, and runs it with the artifact's own weights."""
    compiled = _compile_again(artifact, source)
    if not compiled.ops:
        return None
    plans = tuple(plan_graph(graph, keep_all=True) for graph in compiled.graphs)
    _, built = build_sources(replace(compiled, plans=plans), bindings=True)
    module = import_binding(built.binding)
    weights = _weights(artifact, compiled)
    plain = substitute(compiled.model, ())
    for case, values in _runs(plain, compiled, cases):
        for index, (subgraph, plan) in enumerate(zip(compiled.partition.subgraphs, plans, strict=True)):
            graph = module.Graph(index)
            graph.set_weights(weights[index])
            inputs = [np.asarray(values[value.name or ""]) for value in subgraph.inputs]
            found = _first_departure(graph, plan, inputs)
            if found is not None:
                node, value, difference = found
                made_by = {n.name or n.op_type: origins(n) for n in subgraph.nodes}
                nodes = made_by.get(node.origin, (node.origin,))
                return Departure(compiled.ops[index], value.name, node.op.name, nodes, case, difference)
    return None


def _compile_again(artifact: Artifact, source: Any) -> Compilation:
    recorded = artifact.manifest["options"]
    if any("<function>" in (recorded[key] or ()) for key in ("include", "exclude")):
        raise OptionError(
            f"'{artifact.folder}' was built with functions as selectors, which can't be repeated per node"
        )
    dims = {name: tuple(bound) if isinstance(bound, list) else bound for name, bound in recorded["dims"].items()}
    between = recorded["between"] and (recorded["between"][0], recorded["between"][1])
    options = Options(
        Target.parse(artifact.manifest["target"]),
        dims,
        recorded["include"],
        recorded["exclude"],
        between,
        recorded["whole_graph"],
        artifact.name,
        cache=recorded.get("cache", "as-is"),
    )
    section = artifact.manifest.get("tuning")
    compiled = compile_with(source, options, tuning=Tuning.from_json(section) if section else None)
    returned = {index: "given back" for index, op in enumerate(compiled.ops) if op not in artifact.ops}
    compiled = give_back(compiled, returned) if returned else compiled
    if compiled.domain != artifact.domain:
        raise ArtifactError(
            f"'{artifact.folder}' was built from another model or by another version of Ortisan; build it again"
        )
    return compiled


def _weights(artifact: Artifact, compiled: Compilation) -> list[list[Array]]:
    """The packed weights as the artifact's model has them."""
    model = ir.load(artifact.model)
    nodes = {node.op_type: node for node in model.graph if node.domain == artifact.domain}
    result = []
    for op, graph in zip(compiled.ops, compiled.graphs, strict=True):
        tensors = [value.const_value for value in nodes[op].inputs[len(graph.inputs) :] if value is not None]
        result.append([tensor.numpy() for tensor in tensors if tensor is not None])
    return result


def _runs(
    plain: ir.Model, compiled: Compilation, cases: Iterable[Iterable[Case]]
) -> Iterator[tuple[str, Mapping[str, Array]]]:
    """For each case what flows into the subgraphs."""
    for attempts in cases:
        tried: list[str] = []
        with tempfile.TemporaryDirectory(prefix="ortisan-values-") as folder:
            listed = _remember(attempts, tried)
            values = boundary_values(plain, compiled.partition.subgraphs, listed, Path(folder))
        yield tried[-1], values


def _remember(cases: Iterable[Case], tried: list[str]) -> Iterator[Case]:
    for case in cases:
        tried.append(case.label)
        yield case


def _first_departure(graph: Any, plan: GraphPlan, inputs: Sequence[Array]) -> tuple[Node, Value, Difference] | None:
    outputs, scratch, numbers = graph.trace(list(inputs))
    symbols = dict(zip(plan.graph.symbols, numbers, strict=True))
    offsets = plan.memory.offsets(symbols)
    expected = evaluate_values(plan.graph, inputs)
    for node in plan.graph.nodes:
        for value in node.outputs:
            place = plan.memory.places.get(value)
            if place is None or place.kind == "input":
                continue
            shape = tuple(evaluate(dim, symbols) for dim in value.shape)
            start = offsets[place.index] if place.kind == "scratch" else 0
            memory = scratch if place.kind == "scratch" else np.ascontiguousarray(outputs[place.index]).reshape(-1)
            count = int(np.prod(shape, dtype=np.int64)) * value.dtype.size
            actual = memory.view(np.uint8)[start : start + count].view(value.dtype.numpy).reshape(shape)
            difference = compare(actual, expected[value])
            if not difference.within(value.dtype, "close"):
                return node, value, difference
    return None
