"""manifest.json, written: its one author. `runtime/manifest.py` reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import onnx_ir as ir

from ortisan._version import __version__
from ortisan.checks.bench import Bench
from ortisan.checks.verify import Verification
from ortisan.codegen.backend import Plan
from ortisan.converter.partition import LeftOut, Subgraph
from ortisan.converter.passes.freeze import overridable
from ortisan.converter.passes.rounding import rounded_outputs
from ortisan.pipeline.causes import follows
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.pays import costliest_left
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Graph
from ortisan.runtime.manifest import FORMAT


@dataclass(frozen=True)
class Written:
    """What a build has put into the artifact folder."""

    model: str
    library: str | None
    source: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]
    sources_sha256: str | None
    compiler: str | None
    onnxruntime: str | None


@dataclass(frozen=True)
class Left:
    """A compiled subgraph that is left to ONNX Runtime because it was not right."""

    op: str
    reason: str
    reproducer: str | None
    """The folder with the subgraph as a model, its inputs and both outputs."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Measured:
    """What a build found when it ran the artifact, or why it did not."""

    given_back: Sequence[str] = ()
    verification: Verification | None = None
    benches: Sequence[Bench] = ()
    """One for each number of threads, the last with all of them."""
    not_run: str | None = None
    left: Sequence[Left] = ()
    narrow: str | None = None
    """A sentence about dims of which one size alone ran."""
    noisy_node: str | None = None
    """The node that makes the model noisy, where outputs were judged by noise."""

    @property
    def bench(self) -> Bench | None:
        return self.benches[-1] if self.benches else None


def describe_artifact(compiled: Compilation, written: Written, measured: Measured | None = None) -> dict[str, Any]:
    """The whole manifest."""
    found = measured or Measured()
    return {
        **describe_compilation(compiled, built=written.compiler is not None),
        "model": written.model,
        "library": written.library,
        "source": written.source,
        "files": written.files,
        "sources_sha256": written.sources_sha256,
        "compiler": written.compiler,
        "onnxruntime": written.onnxruntime,
        "given_back": list(found.given_back),
        "verification": found.verification.to_json() if found.verification else None,
        "verified": found.verification.how if found.verification else None,
        "narrow": found.narrow,
        "noisy_node": found.noisy_node,
        "departures": [left.to_json() for left in found.left],
        "bench": found.bench.to_json() if found.bench else None,
        "benches": [bench.to_json() for bench in found.benches],
        "not_run": found.not_run,
    }


def describe_compilation(compiled: Compilation, *, built: bool = False) -> dict[str, Any]:
    """The part of the manifest that does not depend on the build."""
    backend = compiled.target
    return {
        "format": FORMAT,
        "ortisan": __version__,
        "name": compiled.name,
        "target": str(backend),
        "target_notes": list(backend.notes),
        "providers": list(backend.providers),
        **backend.describe(compiled.plans, compiled.options, built=built),
        "domain": compiled.domain,
        "ops": [
            _describe_op(op, subgraph, plan)
            for op, subgraph, plan in zip(compiled.ops, compiled.subgraphs, compiled.plans, strict=True)
        ],
        "shared": shared_values(compiled),
        "rounded": {name: dtype.value for name, dtype in rounded_floats(compiled).items()},
        "options": compiled.options.to_json(),
        "compiled_nodes": sum(len(subgraph.nodes) for subgraph in compiled.subgraphs),
        "flops_share": round(compiled.flops_share(), 6),
        "left_out": group_left_out(compiled.left_out),
        "costliest_left": costliest_left(compiled),
        "overridable_inputs": len(overridable(compiled.model.graph)),
        "op_counts": dict(sorted(compiled.op_counts().items())),
    }


COARSEST = {
    "fp16": DType.FLOAT16,
    **dict.fromkeys(("bf16", "weights-bf16", "weights-int8"), DType.BFLOAT16),
}
"""The type whose rounding is about that of a precision."""


def rounded_floats(compiled: Compilation) -> dict[str, DType]:
    """Outputs that are no more accurate than a coarser float type than theirs, and that type."""
    result = rounded_outputs(compiled.model)
    coarse = DType.FLOAT16 if compiled.options.tf32 else COARSEST.get(compiled.options.precision)
    if coarse is not None:
        floats = [value.name for value in compiled.model.graph.outputs if value.dtype == ir.DataType.FLOAT]
        result |= {name: coarse for name in floats if name and name not in result}
    return result


def shared_values(compiled: Compilation) -> dict[str, str]:
    """Inputs of the model whose memory an output may be, and those outputs: caches that are written in place."""
    inputs = {value.name for value in compiled.model.graph.inputs}
    outputs = {value.name for value in compiled.model.graph.outputs}
    pairs = ((plan.graph.inputs[i].name, plan.graph.output_names[o]) for plan in compiled.plans for i, o in plan.shared)
    return {name: output for name, output in pairs if name in inputs and output in outputs}


def _describe_op(op: str, subgraph: Subgraph, plan: Plan) -> dict[str, Any]:
    graph = subgraph.graph
    return {
        "op": op,
        "onnx_nodes": len(subgraph.nodes),
        "graph_nodes": len(graph.nodes),
        "inputs": {value.name: str(value.type) for value in graph.inputs},
        "outputs": {name: str(value.type) for name, value in zip(graph.output_names, graph.outputs, strict=True)},
        "symbols": {name: _bounds(graph, name) for name in graph.symbols},
        **plan.describe(),
    }


def _bounds(graph: Graph, symbol: str) -> list[int | None]:
    low, high = graph.bounds.get(symbol, (0, None))
    return [low, high]


def group_left_out(left_out: Sequence[LeftOut]) -> list[dict[str, Any]]:
    """Nodes with the same op and the same reason together: causes first, then the largest group."""
    groups: dict[tuple[str, str], list[str]] = {}
    for left in left_out:
        groups.setdefault((left.op_type, left.reason), []).append(left.node)
    ordered = sorted(groups.items(), key=lambda item: (follows(item[0][1]), -len(item[1]), item[0]))
    return [{"op_type": op, "reason": reason, "nodes": nodes} for (op, reason), nodes in ordered]


def reasons_in_short(left_out: Sequence[LeftOut], most: int = 5) -> str:
    """The reasons that keep most nodes out, one per line."""
    groups: Sequence[Mapping[str, Any]] = group_left_out(left_out)
    lines = [f"  {len(group['nodes'])} x {group['op_type']}: {group['reason']}" for group in groups[:most]]
    more = len(groups) - most
    return "\n".join(lines + ([f"  and {more} more reasons"] if more > 0 else []))
