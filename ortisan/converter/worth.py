"""Whether a subgraph has enough work to pay for the call of a custom op."""

from __future__ import annotations

from ortisan.registry.dims import Dim, typical
from ortisan.registry.graph import Graph, Node
from ortisan.registry.ops import ArgReduce, Move, Reduce

CALL_OPERATIONS = 2048
"""Binding the symbols of a call and asking for memory takes about as long as this many operations."""


def too_small(graph: Graph) -> str | None:
    """Why the work of a call would not pay for the call, or None if it does. Symbolic dims count as a typical size."""
    work = sum(max(0, typical(_work(node))) for node in graph.nodes if not isinstance(node.op, Move))
    if work >= CALL_OPERATIONS:
        return None
    return f"too small to pay for a call: about {work} operations"


def _work(node: Node) -> Dim:
    return node.inputs[0].type.elements if isinstance(node.op, (ArgReduce, Reduce)) else node.flops
