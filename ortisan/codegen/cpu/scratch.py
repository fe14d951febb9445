"""How much working memory a call of a custom op takes, at sizes that say what to expect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ortisan.registry.dims import symbols_of
from ortisan.registry.graph import Graph

if TYPE_CHECKING:
    from ortisan.codegen.cpu.plan import GraphPlan

_TYPICAL_BATCH = 1
_TYPICAL_SIZE = 128


@dataclass(frozen=True)
class Scratch:
    """The size of the scratch block of one call for these values of the symbols."""

    dims: Mapping[str, int]
    bytes: int

    def where(self) -> str:
        return ("at " + ", ".join(f"{name}={size}" for name, size in self.dims.items())) if self.dims else ""


def typical_scratch(plan: GraphPlan) -> Scratch:
    """For one batch of 128, as builds are timed on, within the bounds."""
    graph = plan.graph
    leading = _leading(graph)
    dims = {}
    for name in graph.symbols:
        low, high = graph.bounds.get(name, (0, None))
        size = max(_TYPICAL_BATCH if name in leading else _TYPICAL_SIZE, low)
        dims[name] = size if high is None else min(size, high)
    return Scratch(dims, scratch_bytes(plan, dims))


def largest_scratch(plan: GraphPlan) -> Scratch | None:
    """With every symbol at its upper bound; None when one has no bound."""
    bounds = plan.graph.bounds
    if not set(plan.graph.symbols) <= bounds.keys():
        return None
    dims = {name: bounds[name][1] for name in plan.graph.symbols}
    return Scratch(dims, scratch_bytes(plan, dims))


def in_bytes(count: int) -> str:
    """A size, as people write it."""
    return f"{count / 1e6:.3g} MB" if count >= 1e6 else f"{count / 1e3:.3g} kB" if count >= 1e3 else f"{count} bytes"


def scratch_bytes(plan: GraphPlan, dims: Mapping[str, int]) -> int:
    """What the generated code asks for."""
    return plan.memory.offsets(dims)[-1]


def _leading(graph: Graph) -> frozenset[str]:
    """Symbols that look like a batch: they come first in an input of several dims."""
    return frozenset().union(*(symbols_of(value.shape[0]) for value in graph.inputs if len(value.shape) > 1))
