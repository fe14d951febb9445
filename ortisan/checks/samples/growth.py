"""The lengths of a decoder with growing caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ortisan.checks.samples.shapes import free_symbols, symbols_of


@dataclass(frozen=True)
class Growth:
    """The symbols of a decoder with growing caches: its past, new and total lengths are related."""

    past: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()
    total: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, graph: ir.Graph, inputs: Sequence[ir.Value], masks: Sequence[ir.Value], leading: frozenset[str]
    ) -> Growth:
        """Finds the caches: inputs that are concatenated with new values into an output."""
        past: set[str] = set()
        for output in graph.outputs:
            node = output.producer()
            cache = node.inputs[0] if node is not None and node.op_type == "Concat" and node.inputs else None
            if node is not None and cache is not None and cache in inputs and cache.shape is not None:
                axis = node.attributes.get_int("axis", 0)
                past |= free_symbols(cache.shape[axis]) if -cache.shape.rank() <= axis < cache.shape.rank() else set()
        if not past:
            return cls()
        ends = [value.shape[-1] for value in masks if value.shape is not None and value.shape.rank()]
        total = frozenset(name for dim in ends if len(free_symbols(dim)) == 1 for name in free_symbols(dim))
        new = frozenset(symbols_of(inputs)) - past - total - leading
        return cls(frozenset(past), new, total - past - new - leading)

    def applied(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes with one past length for all caches, and the total set to past + new (one new position if no dim
        says).
        """
        if not self.past or not self.past <= sizes.keys():
            return dict(sizes)
        past = sizes[min(self.past)]
        new = sizes[min(self.new)] if self.new else 1
        return {**sizes, **dict.fromkeys(self.past, past), **dict.fromkeys(self.total, past + new)}
