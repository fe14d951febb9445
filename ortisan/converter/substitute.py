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
    nodes = {node.name: node for node in graph}
    for replacement in replacements:
        _replace(graph, nodes, replacement)
        result.opset_imports[replacement.domain] = 1
    expand_private(result)
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
    for value in _values(graph):
        value.metadata_props.clear()
    return result


def _values(graph: ir.Graph) -> list[ir.Value]:
    values = [*graph.inputs, *graph.initializers.values()]
    return values + [value for node in graph.all_nodes() for value in node.outputs]


def _replace(graph: ir.Graph, nodes: Mapping[str | None, ir.Node], replacement: Replacement) -> None:
    subgraph = replacement.subgraph
    inside = [nodes[node.name] for node in subgraph.nodes]
    values = {value.name: value for value in [*graph.inputs, *graph.initializers.values()]}
    values.update((value.name, value) for node in graph for value in node.outputs)
    inputs = [values[value.name] for value in subgraph.inputs]
    weights = [_weight(graph, name, tensor) for name, tensor in replacement.weights]
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


def _weight(graph: ir.Graph, name: str, tensor: ir.TensorProtocol) -> ir.Value:
    """Returns an initializer of this name and content, reusing an existing equal one."""
    base, suffix = name, 0
    while name in graph.initializers:
        existing = graph.initializers[name]
        if existing.const_value is not None and _same(existing.const_value.numpy(), tensor.numpy()):
            return existing
        suffix += 1
        name = f"{base}/{suffix}"
    tensor.name = name
    shape = ir.Shape(tensor.shape.numpy())
    value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=shape)
    graph.register_initializer(value)
    return value


def _same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and (np.shares_memory(a, b) or bool(np.array_equal(a, b)))
