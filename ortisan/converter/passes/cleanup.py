"""Passes that make a graph smaller and keep its meaning. Each returns how many nodes it removed or changed.

Graph inputs, graph outputs and their names stay; nodes that are random or of an unknown domain are never merged.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
from onnx_ir.passes import common

from ortisan.converter.passes.inline import inline_functions
from ortisan.converter.passes.origin import set_origins

__all__ = [
    "RANDOM_OPS",
    "count_nodes",
    "inline_functions",
    "lift_constants",
    "merge_equal_nodes",
    "order_operands",
    "remove_identities",
    "remove_unused",
]

RANDOM_OPS = frozenset(
    {"RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike", "Multinomial", "Bernoulli", "Dropout"}
)


def lift_constants(model: ir.Model) -> int:
    """Turns all Constant nodes into initializers of the main graph, including small ones and those in subgraphs."""
    before = count_nodes(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    common.LiftSubgraphInitializersToMainGraphPass()(model)
    common.DeduplicateInitializersPass(size_limit=1024)(model)
    return before - count_nodes(model)


def remove_unused(model: ir.Model) -> int:
    """Removes nodes and initializers that no graph output needs."""
    before = count_nodes(model)
    common.RemoveUnusedNodesPass()(model)
    _forget_removed_bodies(model)
    return before - count_nodes(model)


def _forget_removed_bodies(model: ir.Model) -> None:
    """Detaches nodes in the branches of a removed If from the values they read."""
    alive = set(model.graph.all_nodes())
    values = [*model.graph.inputs, *model.graph.initializers.values(), *(v for node in alive for v in node.outputs)]
    for value in values:
        for user, index in value.uses():
            if user not in alive and user.graph is not None and user.graph is not model.graph:
                user.replace_input_with(index, None)


def remove_identities(model: ir.Model) -> int:
    """Removes Identity, Concat of one value, idle Dropout, and Expand or Reshape to the shape that a value has already.

    Nodes whose removal would drop or rename a graph input or output stay.
    """
    opset = model.opset_imports.get("", 0)
    count = 0
    for node in list(model.graph.all_nodes()):
        if node.domain == "" and (
            node.op_type == "Identity"
            or (node.op_type == "Concat" and len(node.inputs) == 1)
            or _is_idle_dropout(node, opset)
            or _is_idle_shaping(node)
        ):
            count += _bypass(node)
    return count


def _is_idle_shaping(node: ir.Node) -> bool:
    if node.op_type not in ("Expand", "Reshape"):
        return False
    before, after = node.inputs[0].shape if node.inputs[0] is not None else None, node.outputs[0].shape
    if before is None or after is None or before != after:
        return False
    return all(isinstance(dim, int) or dim.value is not None for dim in before)


def _is_idle_dropout(node: ir.Node, opset: int) -> bool:
    if node.op_type != "Dropout":
        return False
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        return False
    if opset < 7:
        return node.attributes.get_int("is_test", 0) == 1
    if opset < 12:
        return True
    training = node.inputs[2] if len(node.inputs) > 2 else None
    if training is None:
        return True
    return training.const_value is not None and not bool(training.const_value.numpy().any())


def _bypass(node: ir.Node) -> bool:
    source, result, graph = node.inputs[0], node.outputs[0], node.graph
    if source is None or graph is None:
        return False
    if result.is_graph_output():
        producer = source.producer()
        if producer is None or producer.graph is not graph or source.is_graph_output():
            return False
        name = result.name
        ir.convenience.replace_all_uses_with(result, source, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        source.name = name
    else:
        ir.convenience.replace_all_uses_with(result, source)
        graph.remove(node, safe=True)
    return True


def merge_equal_nodes(model: ir.Model, frozen: Callable[[ir.Node], bool]) -> int:
    """Merges nodes of the same op, inputs and attributes (common subexpressions), graph by graph."""
    count = 0
    for graph in model.graphs():
        first: dict[object, ir.Node] = {}
        for node in list(graph):
            key = None if frozen(node) else _equality_key(node)
            twin = first.setdefault(key, node) if key is not None else node
            if twin is not node and not any(value.is_graph_output() for value in node.outputs):
                set_origins(twin, (twin, node))
                ir.convenience.replace_all_uses_with(node.outputs, twin.outputs)
                graph.remove(node, safe=True)
                count += 1
    return count


def _equality_key(node: ir.Node) -> object | None:
    if node.domain != "" or node.op_type in RANDOM_OPS:
        return None
    attributes = []
    for name, attribute in sorted(node.attributes.items()):
        if attribute.type not in _COMPARABLE or attribute.is_ref():
            return None
        value = attribute.value
        attributes.append((name, attribute.type, tuple(value) if isinstance(value, (list, tuple)) else value))
    return node.op_type, tuple(id(value) for value in node.inputs), len(node.outputs), tuple(attributes)


_COMPARABLE = frozenset(
    {
        ir.AttributeType.INT,
        ir.AttributeType.INTS,
        ir.AttributeType.FLOAT,
        ir.AttributeType.FLOATS,
        ir.AttributeType.STRING,
        ir.AttributeType.STRINGS,
    }
)


def order_operands(model: ir.Model, frozen: Callable[[ir.Node], bool]) -> int:
    """Puts the constant of an Add or Mul second."""
    count = 0
    for node in model.graph.all_nodes():
        if node.domain != "" or node.op_type not in _SWAPPABLE or len(node.inputs) != 2 or frozen(node):
            continue
        first, second = node.inputs
        if first is not None and second is not None and first.is_initializer() and not second.is_initializer():
            node.replace_input_with(0, second)
            node.replace_input_with(1, first)
            count += 1
    return count


_SWAPPABLE = frozenset({"Add", "Mul"})


def count_nodes(model: ir.Model) -> int:
    return sum(1 for _ in model.graph.all_nodes())


def settle_keepdims(model: ir.Model) -> None:
    """ONNX defines 0 and 1; ONNX Runtime keeps the dims for 1 and no other number, inference for any but 0."""
    for node in model.graph.all_nodes():
        if node.domain == "" and node.attributes.get_int("keepdims", 1) not in (0, 1):
            node.attributes["keepdims"] = ir.AttrInt64("keepdims", 0)
