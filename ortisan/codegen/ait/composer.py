"""The builder that compositions write with: it refuses what AITemplate can't take, and keeps moves few."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.rules import Rule
from ortisan.registry.builder import Builder, is_constant
from ortisan.registry.dims import Dim, Facts, is_static
from ortisan.registry.graph import DimValues, Node, Op, Value
from ortisan.registry.ops import Permute, Reshape
from ortisan.registry.refusal import Refused

_FREE_ELEMENTS = 2**20
"""What a folded constant may have in any case."""


class Composer(Builder):
    """A builder that refuses what the rules speak against, joins permutes and folds constants of any size."""

    def __init__(self, name: str, bounds: Bounds, rules: Mapping[type[Op], Rule]) -> None:
        super().__init__(name)
        self.bounds = bounds
        self._rules = rules
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
        if node is not None and (reason := self._why_not(node)):
            raise Refused(reason)
        return outputs

    def _why_not(self, node: Node) -> str | None:
        rule = self._rules.get(type(node.op))
        return f"AITemplate has no {node.op.name}" if rule is None else rule(node, self.bounds)

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


Compose = Callable[[Composer, Op, tuple[Value, ...]], Sequence[Value]]
"""Writes an op with ops that AITemplate has, or raises `Refused`."""
