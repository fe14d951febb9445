"""Op graph -> op graph of what AITemplate has: the same meaning, composed of ops that map to it one to one.

The result is an op graph like any other, so its numpy reference tells whether a composition is right. A node that
can't be composed is refused with a reason; the others are rewritten all the same, so that all reasons come at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.blame import blame
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Simplifier
from ortisan.codegen.ait.ops import AIT_OPS
from ortisan.codegen.ait.rules import FLOATS
from ortisan.registry.builder import Builder, is_constant
from ortisan.registry.graph import Graph, Node, Op, TensorType, Value
from ortisan.registry.passes.rewrite import Rule, run_pass
from ortisan.registry.refusal import Refused


@dataclass(frozen=True, eq=False)
class Dialect:
    """The rewritten graph, what was chosen on the way, and the nodes that AITemplate can't have (origin -> reason).

    What is refused is an input of the rewritten graph, behind its own, for what comes after it.
    """

    graph: Graph
    notes: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)


def to_dialect(graph: Graph) -> Dialect:
    rules = {op: row.why_not for op, row in AIT_OPS.items()}
    composer = Composer(graph.name, graph.bounds, rules)
    rule = _ToDialect(graph, composer, Simplifier(graph.guards, graph.bounds))
    done = run_pass("to_dialect", graph, rule, composer)
    notes = tuple(f"{count} x {text}" for text, count in composer.notes.items())
    return Dialect(done, notes, rule.refused | _outputs_refused(graph, done, rule.refused))


class _ToDialect(Rule):
    def __init__(self, graph: Graph, composer: Composer, simple: Simplifier) -> None:
        self.refused: dict[str, str] = {}
        self._graph = graph
        self._composer = composer
        self._simple = simple

    def input(self, b: Builder, value: Value) -> Value:
        return b.input(value.name, self._type(value))

    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
        op = self._simple.op(node.op)
        row = AIT_OPS.get(type(op))
        try:
            return self._taken(b, row, op, inputs)
        except Refused as reason:
            self.refused = {**blame(self._graph, node, str(reason)), **self.refused}
            return [b.input(value.name, self._type(value)) for value in node.outputs]

    def _taken(self, b: Builder, row: AitOp | None, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
        """The op composed, or as it is where it can't be and a kernel of ours computes it."""
        if row is None or row.compose is None:
            return b.add_many(op, *inputs)
        try:
            return row.compose(self._composer, op, inputs)
        except Refused:
            if row.ours is None:
                raise
            made = b.add_many(op, *inputs)
            node = b.producer(made[0])
            if node is not None and not row.is_ours(node, self._graph.bounds):
                raise
            return made

    def _type(self, value: Value) -> TensorType:
        return TensorType(value.dtype, tuple(self._simple.dim(dim) for dim in value.shape))


def _outputs_refused(graph: Graph, done: Graph, refused: Mapping[str, str]) -> dict[str, str]:
    """AITemplate's outputs are made by ops: what is known before, or is there already, is none unless it is copied."""
    made_by = {value: node.origin for node in graph.nodes for value in node.outputs}
    seen: set[Value] = set(done.inputs[: len(graph.inputs)])
    found: dict[str, str] = {}
    for value, new in zip(graph.outputs, done.outputs, strict=True):
        origin = made_by.get(value, graph.name)
        if origin not in refused and is_constant(new):
            found[origin] = "its result is known when it is compiled"
        elif origin not in refused and not new.shape:
            found[origin] = "AITemplate has no tensors without dims"
        elif new in seen and new.dtype not in FLOATS:
            found[origin] = f"AITemplate can't copy {new.dtype.value} to an output"
        seen.add(new)
    return found
