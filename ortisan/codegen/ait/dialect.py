"""Op graph -> op graph of what AITemplate has: the same meaning, composed of ops that map to it one to one.

The result is an op graph like any other, so its numpy reference tells whether a composition is right. A node that
can't be composed is refused with a reason; the others are rewritten all the same, so that all reasons come at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ortisan.codegen.ait.dims import Bounds, Simplifier
from ortisan.codegen.ait.rules import FLOATS, why_not
from ortisan.registry.builder import Builder, is_constant
from ortisan.registry.dims import Dim, Facts, is_static
from ortisan.registry.graph import DimValues, Graph, Op, TensorType, Value
from ortisan.registry.ops import Permute, Reshape
from ortisan.registry.refusal import Refused

_FREE_ELEMENTS = 2**20
"""What a folded constant may have in any case."""


@dataclass(frozen=True, eq=False)
class Dialect:
    """The rewritten graph, what was chosen on the way, and the nodes that AITemplate can't have (origin -> reason)."""

    graph: Graph
    notes: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)


class Composer(Builder):
    """A builder that refuses what the rules speak against, joins permutes and folds constants of any size."""

    def __init__(self, name: str, bounds: Bounds) -> None:
        super().__init__(name)
        self.bounds = bounds
        self.notes: dict[str, int] = {}

    def facts(self) -> Facts:
        return Facts(self.origin)

    def note(self, text: str) -> None:
        self.notes[text] = self.notes.get(text, 0) + 1

    def _add(self, op: Op, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        if inputs and all(map(is_constant, inputs)) and self._folds(op, inputs):
            return self._fold_all(op, inputs)
        outputs = super()._add(op, inputs)
        node = self._producers.get(outputs[0])
        if node is not None and (reason := why_not(node, self.bounds)):
            raise Refused(reason)
        return outputs

    def _folds(self, op: Op, inputs: Sequence[Value]) -> bool:
        """Whether the result is of known shape, and not much larger than what it is made of."""
        dims = [dim for type_ in op.infer([value.type for value in inputs], self.facts()) for dim in type_.shape]
        if not all(map(is_static, dims)):
            return False
        given = sum(int(value.type.elements) for value in inputs)
        return int(np.prod(dims, dtype=np.int64)) <= _FREE_ELEMENTS + 2 * given

    def _fold_all(self, op: Op, inputs: Sequence[Value]) -> tuple[Value, ...]:
        arrays = op.reference([value.data for value in inputs if value.data is not None], DimValues({}))
        return tuple(self.constant(np.ascontiguousarray(array), inputs[0].name) for array in arrays)

    def permute(self, x: Value, order: Sequence[int]) -> Value:  # type: ignore[override]
        """One permute for two in a row, none where they cancel, a reshape where only dims of 1 move."""
        order = tuple(order)
        before = self.producer(x)
        if before is not None and isinstance(before.op, Permute):
            return self.permute(before.inputs[0], tuple(before.op.order[axis] for axis in order))
        moving = [axis for axis in order if x.shape[axis] != 1]
        if moving == sorted(moving):
            return self.reshape(x, [x.shape[axis] for axis in order])
        return self.add(Permute(order), x)

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:  # type: ignore[override]
        before = self.producer(x)
        if before is not None and isinstance(before.op, Reshape):
            return self.reshape(before.inputs[0], shape)
        return super().reshape(x, shape)


Row = Callable[[Composer, Op, tuple[Value, ...]], Sequence[Value]]


def to_dialect(graph: Graph, rows: Mapping[type[Op], Row]) -> Dialect:
    """Rewrites node by node; what is refused stands as an input of its type for what comes after it."""
    simple = Simplifier(graph.guards, graph.bounds)
    b = Composer(graph.name, graph.bounds)
    values: dict[Value, Value] = {value: value for value in graph.constants}
    for value in graph.inputs:
        values[value] = b.input(value.name, _simple_type(simple, value))
    refused: dict[str, str] = {}
    for node in graph.nodes:
        b.origin = node.origin
        inputs = tuple(values[value] for value in node.inputs)
        try:
            outputs = _rewrite(b, simple.op(node.op), inputs, rows)
        except Refused as reason:
            refused.setdefault(node.origin, str(reason))
            outputs = [Value(value.name, _simple_type(simple, value)) for value in node.outputs]
        values.update(zip(node.outputs, outputs, strict=True))
    refused |= _outputs_refused(graph, values, refused)
    done = b.finish([values[value] for value in graph.outputs], graph.output_names, graph.bounds)
    notes = tuple(f"{count} x {text}" for text, count in b.notes.items())
    return Dialect(done, notes, refused)


def _outputs_refused(graph: Graph, values: Mapping[Value, Value], refused: Mapping[str, str]) -> dict[str, str]:
    """AITemplate's outputs are made by ops: what is known before, or is there already, is none unless it is copied."""
    made_by = {value: node.origin for node in graph.nodes for value in node.outputs}
    seen: set[Value] = set(map(values.__getitem__, graph.inputs))
    found: dict[str, str] = {}
    for value in graph.outputs:
        origin, new = made_by.get(value, graph.name), values[value]
        if origin not in refused and is_constant(new):
            found[origin] = "its result is known when it is compiled"
        elif new in seen and new.dtype not in FLOATS:
            found[origin] = f"AITemplate can't copy {new.dtype.value} to an output"
        seen.add(new)
    return found


def _rewrite(b: Composer, op: Op, inputs: tuple[Value, ...], rows: Mapping[type[Op], Row]) -> Sequence[Value]:
    row = rows.get(type(op))
    return b.add_many(op, *inputs) if row is None else row(b, op, inputs)


def _simple_type(simple: Simplifier, value: Value) -> TensorType:
    return TensorType(value.dtype, tuple(simple.dim(dim) for dim in value.shape))
