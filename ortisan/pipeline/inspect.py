"""A dry run: which ops of a model would be compiled, and why the others would not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ortisan.converter.passes.origin import origins
from ortisan.pipeline.causes import follows
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.compile import Progress, compile_source
from ortisan.pipeline.manifest import describe_compilation
from ortisan.pipeline.options import make_options, takes_options
from ortisan.pipeline.source import Model, Source
from ortisan.pipeline.unforeseen import raises_ortisan_errors

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ortisan.pipeline.options import Keywords


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


@takes_options
@raises_ortisan_errors
def inspect(model: Model, *, on_progress: Progress = None, **options: Unpack[Keywords]) -> Inspection:
    """Compiles as far as the kernel plan; options as in `compile`."""
    chosen = make_options({"tune": "off", **options}, of="compile")
    source = Source.of(model, chosen)
    compiled = compile_source(source, chosen, on_progress)
    return Inspection(compiled, _rows(source, compiled), compiled.flops_share())


def _rows(source: Source, compiled: Compilation) -> tuple[OpRow, ...]:
    types = source.op_types
    inside = {name for subgraph in compiled.subgraphs for node in subgraph.nodes for name in origins(node)}
    reasons: dict[str, str] = {}
    why = {left.node: left.reason for left in compiled.left_out}
    for node in compiled.model.graph.all_nodes():
        if node.name in why:
            reasons.update((name, why[node.name]) for name in origins(node) if name not in inside)
    totals = Counter(types.values())
    done = Counter(op for name, op in types.items() if name in inside)
    left = Counter(op for name, op in types.items() if name in reasons)
    rows = []
    for op, count in totals.items():
        given = Counter(reasons[name] for name, other in types.items() if other == op and name in reasons)
        reason = min(given, key=lambda each: (follows(each), -given[each])) if given else ""
        rows.append(OpRow(op, count, done[op], left[op], count - done[op] - left[op], reason))
    return tuple(sorted(rows, key=lambda row: (row.left == 0, follows(row.reason), -row.left, -row.nodes, row.op_type)))
