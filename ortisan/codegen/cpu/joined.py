"""Caches as exporters write them: present = concatenate(past, new rows), which attention reads.

A step of few queries reads the past where it was given, so what it was copied to can go around the caches.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ortisan.codegen.cpu.views import Views
from ortisan.registry.dims import Dim, floor_div
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import Attention, Concatenate

_ROWS_AXIS = 2


@dataclass(frozen=True, eq=False)
class JoinedCache:
    past: Value
    readers: tuple[Node, ...]
    """The attentions that read it; nothing else does."""

    @property
    def sizes(self) -> tuple[tuple[Dim, Dim], ...]:
        """Each reader's queries, and the query heads for each head of the cache."""
        return tuple((node.inputs[0].shape[2], heads_per_head(node)) for node in self.readers)


def heads_per_head(node: Node) -> Dim:
    """How many query heads of an attention share one head of keys and values."""
    q, k = node.inputs[:2]
    return 1 if q.shape[1] == k.shape[1] else floor_div(q.shape[1], k.shape[1])


def joined_caches(graph: Graph, views: Views) -> dict[Value, JoinedCache]:
    """By what they were joined to. The past is an input of the graph, which stays as it is for the whole run."""
    readers: dict[Value, list[Node]] = defaultdict(list)
    others: set[Value] = set()
    for node in graph.nodes:
        for index, value in enumerate(node.inputs):
            if isinstance(node.op, Attention) and index in (1, 2):
                readers[value].append(node)
            else:
                others.add(value)
    return {
        node.output: JoinedCache(node.inputs[0], tuple(dict.fromkeys(readers[node.output])))
        for node in graph.nodes
        if node not in views.skipped
        and isinstance(node.op, Concatenate)
        and node.op.axis == _ROWS_AXIS
        and len(node.inputs) == 2
        and views.root(node.inputs[0]) in graph.inputs
        and views.layout(node.inputs[0]).strides[-1] == 1
        and readers[node.output]
        and node.output not in others
    }
