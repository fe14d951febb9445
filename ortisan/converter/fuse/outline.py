"""Outlining: nodes become the body of a model-local function in the private domain, and one call takes their place.

A call that is not compiled is inlined again by `expand_private`, which gives back the nodes of its body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir
from onnx_ir.passes import common

from ortisan.converter.passes.cleanup import lift_constants
from ortisan.converter.passes.origin import name_nodes, set_origins
from ortisan.registry.entries import PRIVATE_DOMAIN

_PRIVATE_VERSION = 1

AttributeValue = int | float | str


def outline(
    nodes: Iterable[ir.Node],
    graph: ir.Graph,
    model: ir.Model,
    *,
    op_type: str,
    inputs: Sequence[ir.Value],
    attributes: Mapping[str, AttributeValue],
) -> ir.Node:
    """Replaces `nodes` of `graph` by one call of `op_type` on `inputs`, and returns it.

    The last of the nodes makes the result, and nothing else that they make is used outside. Constants that are not
    among the inputs move into the function's body.
    """
    chosen = set(nodes)
    body = [node for node in graph if node in chosen]
    last = body[-1]
    overload = str(sum(1 for domain, name, _ in model.functions if (domain, name) == (PRIVATE_DOMAIN, op_type)) + 1)
    function = ir.Function(
        PRIVATE_DOMAIN, op_type, overload, graph=_copy_body(body, inputs, model.opset_imports), attributes=()
    )
    model.functions[function.identifier()] = function
    model.opset_imports.setdefault(PRIVATE_DOMAIN, _PRIVATE_VERSION)
    call = ir.Node(
        PRIVATE_DOMAIN,
        op_type,
        inputs,
        [ir.convenience.convert_attribute(name, value) for name, value in attributes.items()],
        overload=overload,
        name=last.name,
    )
    set_origins(call, body)
    ir.convenience.replace_nodes_and_values(graph, last, body, [call], [last.outputs[0]], call.outputs)
    return call


def _copy_body(nodes: Sequence[ir.Node], inputs: Sequence[ir.Value], imports: Mapping[str, int]) -> ir.Graph:
    copies: dict[ir.Value, ir.Value] = {
        value: ir.Value(name=value.name, type=value.type, shape=value.shape) for value in inputs
    }
    parameters = [copies[value] for value in inputs]
    copied: list[ir.Node] = []
    for node in nodes:
        for value in node.inputs:
            if value is not None and value not in copies:
                constant = _constant_node(value)
                copies[value] = constant.outputs[0]
                copied.append(constant)
        copy = ir.Node(
            node.domain,
            node.op_type,
            [None if value is None else copies[value] for value in node.inputs],
            list(node.attributes.values()),
            num_outputs=len(node.outputs),
            name=node.name,
            metadata_props=dict(node.metadata_props),
        )
        for value, new in zip(node.outputs, copy.outputs, strict=True):
            new.name, new.type, new.shape = value.name, value.type, value.shape
            copies[value] = new
        copied.append(copy)
    used = {node.domain for node in nodes} | {""}
    versions = {domain: version for domain, version in imports.items() if domain in used}
    return ir.Graph(parameters, [copies[nodes[-1].outputs[0]]], nodes=copied, opset_imports=versions)


def _constant_node(value: ir.Value) -> ir.Node:
    if value.const_value is None:
        raise ValueError(f"value '{value.name}' is neither an input of the outlined nodes nor a constant")
    node = ir.node("Constant", [], {"value": value.const_value})
    node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = value.name, value.type, value.shape
    return node


def expand_private(model: ir.Model) -> int:
    """Inlines every call of a private function and drops the functions, which makes the model plain ONNX again.

    Returns the number of calls.
    """
    calls = sum(node.domain == PRIVATE_DOMAIN for node in model.graph.all_nodes())
    common.InlinePass(criteria=lambda function: function.domain == PRIVATE_DOMAIN)(model)
    for identifier in [identifier for identifier in model.functions if identifier[0] == PRIVATE_DOMAIN]:
        del model.functions[identifier]
    model.opset_imports.pop(PRIVATE_DOMAIN, None)
    lift_constants(model)
    name_nodes(model)
    return calls
