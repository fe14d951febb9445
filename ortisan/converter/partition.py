"""Cuts graphs into the largest convex subgraphs of nodes that can be compiled: the main graph, and inside of it bodies.

Bodies of control flow are cut like graphs of their own; what they read of the graphs around them are inputs.

The level of a node is the largest number of times any path to it comes back from ONNX Runtime into a compilable node.
Compilable nodes of one level that touch form a subgraph: a path that left it and came back would raise the level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx_ir as ir

from ortisan.converter.lowering import RefusedNode, lower_subgraph
from ortisan.converter.read.bodies import inner_nodes
from ortisan.converter.scopes import Path, Scope, probe_scopes
from ortisan.converter.worth import too_small
from ortisan.errors import UnsupportedError
from ortisan.registry.graph import Graph
from ortisan.registry.ops import Move
from ortisan.registry.passes.rewrite import watch

Objections: TypeAlias = "Callable[[Sequence[Graph]], Sequence[Mapping[str, str]]]"
"""Asks a target what it can't compile: for each op graph, origin (the ONNX node's name) -> reason."""


@dataclass(frozen=True, eq=False)
class Subgraph:
    """Nodes that become one custom op. `inputs` are the ONNX values that feed the op graph's inputs, in order."""

    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    graph: Graph
    scope: Path = ()
    """Where its nodes are: () for the main graph, else the way to a body of control flow."""


@dataclass(frozen=True)
class LeftOut:
    """A node that stays in ONNX Runtime."""

    node: str
    op_type: str
    reason: str


@dataclass(frozen=True, eq=False)
class Partition:
    subgraphs: tuple[Subgraph, ...]
    left_out: tuple[LeftOut, ...]


def partition(
    model: ir.Model,
    *,
    name: str,
    whole_graph: bool = False,
    keep_trivial: bool = False,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    objections: Objections | None = None,
) -> Partition:
    """Subgraphs of the canonical model, and a reason for every node that is in none.

    `objections` is asked about all subgraphs, and again about what remains of them, until there are none.

    With `whole_graph` there is exactly one subgraph, or `UnsupportedError` names every node that can't be in it.
    Subgraphs that only move data are left to ONNX Runtime unless `keep_trivial`; so are small ones in control flow.
    """
    scopes = probe_scopes(model)
    cut = _Cut(name, whole_graph, keep_trivial, bounds or {})
    while True:
        if whole_graph and scopes[0].reasons:
            raise UnsupportedError(_all_refusals(scopes[0].reasons))
        subgraphs: list[Subgraph] = []
        for scope in scopes:
            subgraphs += cut.subgraphs(scope, len(subgraphs))
        refused_nodes = {} if objections is None else _refused(subgraphs, objections)
        for scope in scopes:
            scope.reasons.update((node, why) for node, why in refused_nodes.items() if node.graph is scope.graph)
        if not refused_nodes:
            reasons = {node: reason for scope in scopes for node, reason in scope.reasons.items()}
            left = tuple(LeftOut(node.name or "", node.op_type, reason) for node, reason in reasons.items())
            return Partition(tuple(subgraphs), left)


@dataclass(frozen=True)
class _Cut:
    """How graphs are cut into subgraphs."""

    name: str
    whole: bool
    keep_trivial: bool
    bounds: Mapping[str, tuple[int, int]]

    def subgraphs(self, scope: Scope, number: int) -> list[Subgraph]:
        """Those of one graph, numbered from `number` on. Nodes that turn out not to fit into any get their reason."""
        while True:
            try:
                return self._try(scope, number)
            except RefusedNode as refused:
                scope.reasons[refused.node] = refused.reason

    def _try(self, scope: Scope, number: int) -> list[Subgraph]:
        graph, found = scope.graph, list[Subgraph]()
        for group in [list(graph)] if self.whole and len(graph) else _groups(graph, scope.reasons):
            inputs, outputs = boundary(group)
            title = f"{self.name}_{number + len(found)}"
            lowered, tensors = lower_subgraph(
                title, group, inputs, outputs, probed=scope.environment, bounds=self.bounds
            )
            why = None if self.whole or self.keep_trivial else _not_worth_it(lowered, scope.path)
            if why is not None:
                scope.reasons.update(dict.fromkeys(group, why))
                continue
            found.append(Subgraph(tuple(group), tensors, tuple(outputs), watch("lower", lowered), scope.path))
        return found


def _not_worth_it(graph: Graph, path: Path) -> str | None:
    if all(isinstance(node.op, Move) for node in graph.nodes):
        return "nothing to compute: the nodes around it stay in ONNX Runtime"
    return too_small(graph) if path else None


def _refused(subgraphs: Sequence[Subgraph], objections: Objections) -> dict[ir.Node, str]:
    found = objections([subgraph.graph for subgraph in subgraphs])
    return {
        node: reasons[origin]
        for subgraph, reasons in zip(subgraphs, found, strict=True)
        for node in subgraph.nodes
        if (origin := node.name or node.op_type) in reasons
    }


def _all_refusals(reasons: Mapping[ir.Node, str]) -> str:
    lines = [f"  {node.op_type} '{node.name}': {reason}" for node, reason in reasons.items()]
    count = f"{len(lines)} node{'s' if len(lines) > 1 else ''}"
    return f"the whole graph can't be compiled, because of {count}:\n" + "\n".join(lines)


def boundary(nodes: Sequence[ir.Node]) -> tuple[list[ir.Value], list[ir.Value]]:
    """The outside values that a set of nodes reads (except constants), and the values that others read from it."""
    inside = set(nodes)
    inputs: dict[ir.Value, None] = {}
    outputs: dict[ir.Value, None] = {}
    for node in nodes:
        for value in node.inputs:
            if value is not None and value.producer() not in inside and not _is_fixed(value):
                inputs.setdefault(value)
        for value in node.outputs:
            if value.is_graph_output() or any(use.node not in inside for use in value.uses()):
                outputs.setdefault(value)
    return list(inputs), list(outputs)


def _is_fixed(value: ir.Value) -> bool:
    return value.is_initializer() and not value.is_graph_input()


def _groups(graph: ir.Graph, reasons: Mapping[ir.Node, str]) -> list[list[ir.Node]]:
    order = list(graph)
    feeds = _edges(order)
    level = _levels(order, feeds, reasons)
    return _components(order, feeds, level, reasons)


def _edges(order: Sequence[ir.Node]) -> dict[ir.Node, list[ir.Node]]:
    """Maps each node to the nodes that read its outputs; reads inside control flow count for the owning node."""
    owner = {inner: node for node in order for inner in inner_nodes(node)}
    feeds: dict[ir.Node, list[ir.Node]] = {node: [] for node in order}
    for node in order:
        for value in node.outputs:
            feeds[node].extend(owner.get(use.node, use.node) for use in value.uses())
    return feeds


def _levels(
    order: Sequence[ir.Node], feeds: Mapping[ir.Node, Iterable[ir.Node]], reasons: Mapping[ir.Node, str]
) -> dict[ir.Node, int]:
    level = dict.fromkeys(order, 0)
    for node in order:
        for reader in feeds[node]:
            returns = node in reasons and reader not in reasons
            level[reader] = max(level[reader], level[node] + returns)
    for node in reversed(order):
        # A node that only feeds a later subgraph belongs there.
        readers = list(feeds[node])
        if node not in reasons and readers and all(reader not in reasons for reader in readers):
            level[node] = min(level[reader] for reader in readers)
    return level


def _components(
    order: Sequence[ir.Node],
    feeds: Mapping[ir.Node, Iterable[ir.Node]],
    level: Mapping[ir.Node, int],
    reasons: Mapping[ir.Node, str],
) -> list[list[ir.Node]]:
    parent = {node: node for node in order if node not in reasons}

    def root(node: ir.Node) -> ir.Node:
        while parent[node] is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for node in parent:
        for reader in feeds[node]:
            if reader in parent and level[reader] == level[node]:
                parent[root(reader)] = root(node)
    groups: dict[ir.Node, list[ir.Node]] = {}
    for node in parent:
        groups.setdefault(root(node), []).append(node)
    return list(groups.values())
