"""The graphs of a model that are partitioned: the main graph, and inside of it the bodies of control flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import onnx_ir as ir

from ortisan.converter.lowering import Environment, probe
from ortisan.converter.read.bodies import bodies, inner_nodes, is_control_flow
from ortisan.converter.read.selection import LEFT_OUT

Path: TypeAlias = tuple[tuple[str, str], ...]
"""The way from the main graph to one inside of it: names of nodes, each with the attribute that has the next graph."""


@dataclass(frozen=True, eq=False)
class Scope:
    """A graph, what it lowers to node by node, and why some of its nodes don't. `reasons` grows while it is cut."""

    path: Path
    graph: ir.Graph
    environment: Environment
    reasons: dict[ir.Node, str]


def probe_scopes(model: ir.Model) -> list[Scope]:
    """Probes every graph that can be cut into subgraphs, the main graph first."""
    return list(_probe(model.graph, model.opset_imports, (), None))


def _probe(graph: ir.Graph, opsets: Mapping[str, int], path: Path, outer: Environment | None) -> Iterator[Scope]:
    marks = {node: node.metadata_props[LEFT_OUT] for node in graph if LEFT_OUT in node.metadata_props}
    environment, reasons = probe(graph, opsets, marks, outer)
    yield Scope(path, graph, environment, reasons)
    for node in graph:
        if is_control_flow(node, opsets.get("", 1)):
            for name, body in bodies(node):
                yield from _probe(body, opsets, (*path, (node.name or "", name)), environment)
        else:
            why = f"it is inside of {node.op_type} '{node.name}', whose graphs stay in ONNX Runtime"
            reasons.update((inner, inner.metadata_props.get(LEFT_OUT, why)) for inner in inner_nodes(node))


def find_graph(model: ir.Model, path: Path) -> list[ir.Graph]:
    """The graphs on the way to a scope of the model or of a copy of it, the innermost first."""
    found = [model.graph]
    for name, attribute in path:
        node = next(node for node in found[0] if node.name == name)
        found.insert(0, node.attributes[attribute].as_graph())
    return found
