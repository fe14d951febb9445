"""What a manifest says of a compilation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import onnx_ir as ir

from ortisan._version import __version__
from ortisan.codegen.ait.model import AitModel
from ortisan.codegen.cpu.plan import GraphPlan
from ortisan.codegen.cpu.scratch import largest_scratch, typical_scratch
from ortisan.converter.partition import LeftOut, Subgraph
from ortisan.converter.passes.rounding import rounded_outputs
from ortisan.pipeline.compilation import Compilation, Options
from ortisan.pipeline.flops import compiled_share
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Graph
from ortisan.runtime.manifest import FORMAT


def describe_compilation(compiled: Compilation) -> dict[str, Any]:
    """The part of the manifest that does not depend on the build."""
    isa = compiled.target.isa
    return {
        "format": FORMAT,
        "ortisan": __version__,
        "name": compiled.name,
        "target": str(compiled.target),
        "architectures": list(compiled.target.architectures),
        "target_notes": list(compiled.target.notes),
        "isa": isa.name if isa is not None else None,
        "machine": isa.machine if isa is not None else None,
        "cpu_features": list(isa.features) if isa is not None else [],
        "domain": compiled.domain,
        "ops": [
            _describe_op(op, subgraph, plan)
            for op, subgraph, plan in zip(compiled.ops, compiled.partition.subgraphs, compiled.plans, strict=True)
        ],
        "shared": shared_values(compiled),
        "rounded": {name: dtype.value for name, dtype in rounded_floats(compiled).items()},
        "options": describe_options(compiled.options),
        "tuning": compiled.tuning.to_json([product for plan in compiled.cpu_plans for product in plan.products]),
        "compiled_nodes": sum(len(subgraph.nodes) for subgraph in compiled.partition.subgraphs),
        "flops_share": round(compiled_share(compiled), 6),
        "left_out": group_left_out(compiled.left_out),
        "op_counts": dict(sorted(compiled.op_counts().items())),
    }


def rounded_floats(compiled: Compilation) -> dict[str, DType]:
    """Outputs that are no more accurate than a coarser float type than theirs, and that type."""
    result = rounded_outputs(compiled.model)
    if compiled.options.precision == "fp16" or compiled.options.tf32:
        floats = [value.name for value in compiled.model.graph.outputs if value.dtype == ir.DataType.FLOAT]
        result |= {name: DType.FLOAT16 for name in floats if name and name not in result}
    return result


def shared_values(compiled: Compilation) -> dict[str, str]:
    """Inputs of the model whose memory an output may be, and those outputs: caches that are written in place."""
    inputs = {value.name for value in compiled.model.graph.inputs}
    outputs = {value.name for value in compiled.model.graph.outputs}
    pairs = (
        (plan.graph.inputs[i].name, plan.graph.output_names[o])
        for plan in compiled.cpu_plans
        for i, o in plan.memory.shared
    )
    return {name: output for name, output in pairs if name in inputs and output in outputs}


def describe_options(options: Options) -> dict[str, Any]:
    """The keywords of `compile`; selectors that are functions can't be written down."""
    return {
        "dims": {name: list(bound) if isinstance(bound, tuple) else bound for name, bound in options.dims.items()},
        "include": _selectors(options.include),
        "exclude": _selectors(options.exclude),
        "between": _between(options.between),
        "whole_graph": options.whole_graph,
        "cache": options.cache,
        "precision": options.precision,
        "fast_math": options.fast_math,
        "tf32": options.tf32,
    }


def _selectors(selectors: Any) -> list[str] | None:
    if selectors is None:
        return None
    listed = [selectors] if isinstance(selectors, str) or callable(selectors) else list(selectors)
    return [selector if isinstance(selector, str) else "<function>" for selector in listed]


def _between(between: Any) -> list[list[str]] | None:
    return None if between is None else [[names] if isinstance(names, str) else list(names) for names in between]


def _describe_op(op: str, subgraph: Subgraph, plan: GraphPlan | AitModel) -> dict[str, Any]:
    graph = subgraph.graph
    return {
        "op": op,
        "onnx_nodes": len(subgraph.nodes),
        "graph_nodes": len(graph.nodes),
        "inputs": {value.name: str(value.type) for value in graph.inputs},
        "outputs": {name: str(value.type) for name, value in zip(graph.output_names, graph.outputs, strict=True)},
        "symbols": {name: _bounds(graph, name) for name in graph.symbols},
        **(_describe_model(plan) if isinstance(plan, AitModel) else _describe_plan(plan)),
    }


def _describe_plan(plan: GraphPlan) -> dict[str, Any]:
    most = largest_scratch(plan)
    return {
        "kernels": len(plan.kernels),
        "weight_bytes": sum(plan.packed_sizes()),
        "scratch": {"typical": asdict(typical_scratch(plan)), "at_upper_bounds": asdict(most) if most else None},
    }


def _describe_model(model: AitModel) -> dict[str, Any]:
    return {
        "kernels": model.kernels,
        "weight_bytes": sum(constant.data.nbytes for constant in model.constants),
        "profiled": model.profiled,
        "notes": list(model.notes),
    }


def _bounds(graph: Graph, symbol: str) -> list[int | None]:
    low, high = graph.bounds.get(symbol, (0, None))
    return [low, high]


def group_left_out(left_out: Sequence[LeftOut]) -> list[dict[str, Any]]:
    """Nodes with the same op and the same reason together, the largest group first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for left in left_out:
        groups.setdefault((left.op_type, left.reason), []).append(left.node)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [{"op_type": op, "reason": reason, "nodes": nodes} for (op, reason), nodes in ordered]


def reasons_in_short(left_out: Sequence[LeftOut], most: int = 5) -> str:
    """The reasons that keep most nodes out, one per line."""
    groups: Sequence[Mapping[str, Any]] = group_left_out(left_out)
    lines = [f"  {len(group['nodes'])} x {group['op_type']}: {group['reason']}" for group in groups[:most]]
    more = len(groups) - most
    return "\n".join(lines + ([f"  and {more} more reasons"] if more > 0 else []))
