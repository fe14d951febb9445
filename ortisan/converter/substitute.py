"""Puts custom ops into the model: each compiled subgraph becomes one node, its weights become packed initializers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from ortisan.converter.fuse import expand_private
from ortisan.converter.partition import Subgraph
from ortisan.converter.passes.quiet import quiet_libraries
from ortisan.converter.read.selection import LAYER_ANNOTATION
from ortisan.converter.scopes import find_graph
from ortisan.registry.dtypes import Array

_OWN_METADATA = "ortisan."
_OLDEST_OPSET = 17
"""Known to every ONNX Runtime that supports the custom ops."""


@dataclass(frozen=True, eq=False)
class Replacement:
    """The node that takes a subgraph's place. Weights follow the data inputs, in order."""

    subgraph: Subgraph
    domain: str
    op_type: str
    weights: Sequence[tuple[str, ir.TensorProtocol]]
    attributes: Mapping[str, str]


@quiet_libraries()
def substitute(model: ir.Model, replacements: Sequence[Replacement]) -> ir.Model:
    """A copy of the canonical model with the subgraphs replaced. What was not compiled is plain ONNX again."""
    result = model.clone()
    graph = result.graph
    taken = {value.name or "" for value in _values(result)}
    made = [_replace(result, replacement, taken) for replacement in replacements]
    result.opset_imports.update((replacement.domain, 1) for replacement in replacements)
    expand_private(result)
    for node, replacement in zip(made, replacements, strict=True):
        if replacement.subgraph.scope:
            _own_weights(result, node, len(replacement.subgraph.inputs))
    common.RemoveUnusedNodesPass()(result)
    common.RemoveUnusedOpsetsPass()(result)
    common.TopologicalSortPass()(result)
    if all(node.domain != "" for node in graph.all_nodes()):
        # Without standard ops no ONNX Runtime is too old for their opset.
        result.opset_imports[""] = min(result.opset_imports.get("", _OLDEST_OPSET), _OLDEST_OPSET)
    for key in [key for key in result.metadata_props if key.startswith(_OWN_METADATA)]:
        del result.metadata_props[key]
    for node in graph.all_nodes():
        for key in [key for key in node.metadata_props if key.startswith(_OWN_METADATA)]:
            del node.metadata_props[key]
    for value in _values(result):
        value.metadata_props.clear()
    return result


def _values(model: ir.Model) -> list[ir.Value]:
    return [value for graph in model.graphs() for value in _own_values(graph)]


def _own_values(graph: ir.Graph) -> list[ir.Value]:
    return [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]


def _replace(model: ir.Model, replacement: Replacement, taken: set[str]) -> ir.Node:
    """Names are looked up in the subgraph's own graph first: graphs beside each other may use the same."""
    subgraph = replacement.subgraph
    graphs = find_graph(model, subgraph.scope)
    graph = graphs[0]
    names = {node.name for node in subgraph.nodes}
    inside = [node for node in graph if node.name in names]
    values = {value.name: value for each in reversed(graphs) for value in _own_values(each)}
    inputs = [values[value.name] for value in subgraph.inputs]
    weights = [_weight(model.graph, name, tensor, taken) for name, tensor in replacement.weights]
    outputs = [values[value.name] for value in subgraph.outputs]
    fresh = [ir.Value(name=None, type=value.type, shape=value.shape) for value in outputs]
    node = ir.Node(
        replacement.domain,
        replacement.op_type,
        [*inputs, *weights],
        [ir.AttrString(name, text) for name, text in replacement.attributes.items()],
        outputs=fresh,
        name=replacement.op_type,
    )
    layers = {old.metadata_props.get(LAYER_ANNOTATION) for old in inside}
    layer = layers.pop() if len(layers) == 1 else None
    if layer is not None:
        node.metadata_props[LAYER_ANNOTATION] = layer
    graph.append(node)
    ir.convenience.replace_all_uses_with(outputs, fresh, replace_graph_outputs=True)
    graph.remove(inside, safe=True)
    for old, new in zip(outputs, fresh, strict=True):
        new.name, old.name = old.name, None
    return node


def _weight(graph: ir.Graph, name: str, tensor: ir.TensorProtocol, taken: set[str]) -> ir.Value:
    """Returns an initializer of this name and content, reusing an existing equal one. `taken` are all names so far."""
    base, suffix = name, 0
    while name in taken:
        existing = graph.initializers.get(name)
        constant = None if existing is None else existing.const_value
        if existing is not None and constant is not None and _same(constant.numpy(), tensor.numpy()):
            return existing
        suffix += 1
        name = f"{base}/{suffix}"
    return _initializer(graph, name, tensor, taken)


def _initializer(graph: ir.Graph, name: str, tensor: ir.TensorProtocol, taken: set[str]) -> ir.Value:
    tensor.name = name
    shape = ir.Shape(tensor.shape.numpy())
    value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=shape)
    graph.register_initializer(value)
    taken.add(name)
    return value


def _own_weights(model: ir.Model, node: ir.Node, first: int) -> None:
    """Moves the weights of a custom op into its own graph: before 1.31, ONNX Runtime tells a kernel of no others.

    Its inputs from `first` on are weights.
    """
    graph = node.graph
    taken = {value.name or "" for value in _values(model)}
    for index, value in list(enumerate(node.inputs))[first:]:
        if not isinstance(graph, ir.Graph) or value is None or value.const_value is None:
            continue
        name = f"{node.op_type}/{value.name}"
        while name in taken:
            name = f"{name}/1"
        node.replace_input_with(index, _initializer(graph, name, _alias(value.const_value), taken))


def _alias(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """The same tensor under a name of its own."""
    return ir.LazyTensor(lambda: tensor, dtype=tensor.dtype, shape=tensor.shape)  # type: ignore[arg-type]


def _same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and (np.shares_memory(a, b) or bool(np.array_equal(a, b)))
