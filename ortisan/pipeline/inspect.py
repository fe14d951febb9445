"""A dry run: which ops of a model would be compiled, and why the others would not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ortisan.converter.passes import cleanup
from ortisan.converter.passes.origin import origins, record_origins
from ortisan.converter.read.load import load_model
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.compile import Model, compile
from ortisan.pipeline.flops import compiled_share
from ortisan.pipeline.generate import Progress
from ortisan.pipeline.manifest import describe_compilation


@dataclass(frozen=True)
class OpRow:
    """The nodes of one op type in the caller's model. `folded` ones vanish: constants, shape arithmetic, dead code."""

    op_type: str
    nodes: int
    compiled: int
    left: int
    folded: int
    reason: str


@dataclass(frozen=True)
class Inspection:
    compilation: Compilation
    rows: tuple[OpRow, ...]
    share: float

    def to_json(self) -> dict[str, Any]:
        near = [vars(miss) for miss in self.compilation.near_misses]
        return {
            **describe_compilation(self.compilation),
            "op_types": [vars(row) for row in self.rows],
            "near_misses": near,
        }


def inspect_model(model: Model, *, on_progress: Progress = None, **options: Any) -> Inspection:
    """Compiles as far as the kernel plan; `options` are the keywords of `compile`."""
    compiled = compile(model, on_progress=on_progress, **options)
    return Inspection(compiled, _rows(model, compiled), compiled_share(compiled))


def _rows(model: Model, compiled: Compilation) -> tuple[OpRow, ...]:
    types = _original_types(model)
    inside = {name for subgraph in compiled.partition.subgraphs for node in subgraph.nodes for name in origins(node)}
    reasons: dict[str, str] = {}
    why = {left.node: left.reason for left in compiled.left_out}
    for node in compiled.model.graph:
        if node.name in why:
            reasons.update((name, why[node.name]) for name in origins(node) if name not in inside)
    totals = Counter(types.values())
    done = Counter(op for name, op in types.items() if name in inside)
    left = Counter(op for name, op in types.items() if name in reasons)
    rows = []
    for op, count in totals.items():
        given = Counter(reasons[name] for name, other in types.items() if other == op and name in reasons)
        reason = given.most_common(1)[0][0] if given else ""
        rows.append(OpRow(op, count, done[op], left[op], count - done[op] - left[op], reason))
    return tuple(sorted(rows, key=lambda row: (-row.left, -row.nodes, row.op_type)))


def _original_types(model: Model) -> dict[str, str]:
    """Node name -> op type, with the names that the passes know the nodes by."""
    loaded = load_model(model)
    cleanup.inline_functions(loaded)
    record_origins(loaded)
    return {node.name or "": node.op_type for node in loaded.graph}
