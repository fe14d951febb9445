"""Ops of the op graph that have no CPU kernel yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ortisan.codegen.cpu.kernels import KERNELS
from ortisan.registry.graph import Graph


def without_kernels(graphs: Sequence[Graph]) -> Sequence[Mapping[str, str]]:
    """For each graph the nodes that have none: origin -> reason."""
    return [
        {
            node.origin: f"there is no CPU kernel for {node.op.stem} yet"
            for node in graph.nodes
            if type(node.op) not in KERNELS
        }
        for graph in graphs
    ]
