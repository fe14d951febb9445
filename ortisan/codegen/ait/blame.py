"""Which ONNX nodes a refusal is about, when an op that was made on behalf of none of them is refused.

Sizes that a subgraph needs as data are such ops: they are made at its border. The nodes that read them are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from ortisan.registry.graph import Graph, Node


def blame(graph: Graph, node: Node, reason: str) -> dict[str, str]:
    """The reason by the node's own origin, or else by the origins of the first nodes behind it that have one."""
    return dict.fromkeys(_origins(graph, node), reason)


def _origins(graph: Graph, node: Node) -> list[str]:
    if node.origin:
        return [node.origin]
    found: dict[str, None] = {}
    made = set(node.outputs)
    for reader in graph.nodes:
        if made & set(reader.inputs):
            if reader.origin:
                found.setdefault(reader.origin)
            else:
                made |= set(reader.outputs)
    return list(found)


def by_name(refused: Mapping[str, str], graph: Graph) -> dict[str, str]:
    """The refusals; what names no node of the graph is about all of it."""
    origins = {node.origin for node in graph.nodes}
    about_all = next((reason for origin, reason in refused.items() if origin not in origins or not origin), None)
    everyone = dict.fromkeys(origins - {""}, about_all) if about_all is not None else {}
    return {**everyone, **{origin: reason for origin, reason in refused.items() if origin in origins and origin}}
