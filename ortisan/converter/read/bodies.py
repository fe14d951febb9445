"""The graphs inside of nodes: branches of If, bodies of Loop and Scan."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

_FIRST_SCAN = 9
"""Before this opset Scan had a batch axis of its own, and its body saw neither that axis nor the caller's shapes."""


def bodies(node: ir.Node) -> list[tuple[str, ir.Graph]]:
    """Each graph of a node with the attribute that holds it; graphs of a list have their position after the name."""
    found: list[tuple[str, ir.Graph]] = []
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            continue
        if attribute.type is ir.AttributeType.GRAPH:
            found.append((name, attribute.as_graph()))
        elif attribute.type is ir.AttributeType.GRAPHS:
            found.extend((f"{name}[{index}]", graph) for index, graph in enumerate(attribute.as_graphs()))
    return found


def inner_nodes(node: ir.Node) -> Iterator[ir.Node]:
    """All nodes of a node's graphs, and of the graphs inside of those."""
    for _, graph in bodies(node):
        yield from graph.all_nodes()


def is_control_flow(node: ir.Node, opset: int) -> bool:
    """Whether ONNX defines how the graphs of this node get their inputs and when they run."""
    if node.domain != "" or any(attribute.type is ir.AttributeType.GRAPHS for attribute in node.attributes.values()):
        return False
    return node.op_type in ("If", "Loop") or (node.op_type == "Scan" and opset >= _FIRST_SCAN)
