"""Names and origins: every node has a unique name and records which nodes of the caller's model it came from."""

from __future__ import annotations

import json
from collections.abc import Iterable

import onnx_ir as ir
from onnx_ir.passes import common

ORIGIN_KEY = "ortisan.origin"


def origins(node: ir.Node) -> tuple[str, ...]:
    """Names of the nodes of the caller's model that `node` stands for; its own name when nothing was recorded."""
    recorded = node.metadata_props.get(ORIGIN_KEY)
    if recorded is None:
        return (node.name,) if node.name else ()
    return tuple(json.loads(recorded))


def set_origins(node: ir.Node, sources: Iterable[ir.Node]) -> None:
    """Records that `node` stands for `sources`, each name once, in their order."""
    names = dict.fromkeys(name for source in sources for name in origins(source))
    node.metadata_props[ORIGIN_KEY] = json.dumps(list(names))


def record_origins(model: ir.Model) -> None:
    """Records every node as its own origin and names unnamed ones. Inlined bodies get their call's origin."""
    for node in model.graph.all_nodes():
        if node.name:
            node.metadata_props[ORIGIN_KEY] = json.dumps([node.name])
    name_nodes(model)
    for node in model.graph.all_nodes():
        node.metadata_props.setdefault(ORIGIN_KEY, json.dumps([node.name]))
    for function in model.functions.values():
        for node in function.all_nodes():
            node.metadata_props.pop(ORIGIN_KEY, None)


def name_nodes(model: ir.Model) -> None:
    """Gives every node a name of its own, in the whole model. The names of graph inputs and outputs stay."""
    common.NameFixPass(_NameByOp())(model)
    taken: set[str] = set()
    for node in model.graph.all_nodes():
        name = node.name or node.op_type
        suffix = 0
        unique = name
        while unique in taken:
            suffix += 1
            unique = f"{name}_{suffix}"
        node.name = unique
        taken.add(unique)


class _NameByOp:
    """Names an unnamed node after its op, an unnamed value after the node that makes it."""

    def generate_node_name(self, node: ir.Node) -> str:
        return node.name or node.op_type

    def generate_value_name(self, value: ir.Value) -> str:
        producer = value.producer()
        return value.name or (f"{producer.op_type}_out" if producer is not None else "value")
