"""Inlines model-local functions, in time that grows with what comes out."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator

import onnx_ir as ir
from onnx import defs
from onnx_ir.passes import common

from ortisan.errors import UnsupportedError

MOST_NODES = 200_000
"""A few functions that call each other can stand for more nodes than there is memory."""


def inline_functions(model: ir.Model) -> int:
    """Replaces calls of model-local functions by their bodies and drops the functions. Returns how many calls.

    Raises `UnsupportedError` for functions that can't be inlined.
    """
    if not model.functions:
        return 0
    calls = sum(_called(node, model) is not None for node in model.graph.all_nodes())
    _check_size(model)
    for function in model.functions.values():
        _align_opsets(function, model.opset_imports)
        _separate_outputs(function)
    names = _Names(model)
    for graph in list(model.graphs()):
        _inline_into(graph, model, names)
    model.functions.clear()
    common.RemoveUnusedOpsetsPass()(model)
    return calls


def _called(node: ir.Node, model: ir.Model) -> ir.Function | None:
    return model.functions.get(node.op_identifier())


def _refuse(function: ir.Function, why: str) -> UnsupportedError:
    return UnsupportedError(f"a model-local function can't be inlined: '{function.domain}::{function.name}' {why}")


def _check_size(model: ir.Model) -> None:
    """Counts what every function amounts to, callees first, before anything is copied."""
    callees = {key: list(_callees(function.all_nodes(), model)) for key, function in model.functions.items()}
    try:
        order = list(graphlib.TopologicalSorter(callees).static_order())
    except graphlib.CycleError as error:
        raise _refuse(model.functions[error.args[1][0]], "calls itself") from error
    sizes: dict[ir.OperatorIdentifier, int] = {}
    for key in order:
        own = sum(1 for _ in model.functions[key].all_nodes())
        sizes[key] = own + sum(sizes[callee] for callee in callees[key])
    total = sum(sizes[callee] for callee in _callees(model.graph.all_nodes(), model))
    if total > MOST_NODES:
        raise UnsupportedError(
            f"the model's functions amount to {total} nodes when they are inlined, and more than {MOST_NODES} are not "
            "supported"
        )


def _callees(nodes: Iterator[ir.Node], model: ir.Model) -> Iterator[ir.OperatorIdentifier]:
    return (node.op_identifier() for node in nodes if _called(node, model) is not None)


def _inline_into(graph: ir.Graph, model: ir.Model, names: _Names) -> None:
    for node in graph:
        function = _called(node, model)
        if function is None:
            continue
        _import_opsets(function, model)
        nodes, results = _instantiate(function, node, names)
        ir.convenience.replace_nodes_and_values(graph, node, [node], nodes, node.outputs, results)
        for new in nodes:
            for inner in _bodies(new):
                _inline_into(inner, model, names)


def _bodies(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH and not attribute.is_ref():
            yield attribute.as_graph()
        elif attribute.type is ir.AttributeType.GRAPHS and not attribute.is_ref():
            yield from attribute.as_graphs()


def _import_opsets(function: ir.Function, model: ir.Model) -> None:
    for domain, version in function.opset_imports.items():
        known = model.opset_imports.setdefault(domain, version)
        if known != version:
            raise _refuse(function, f"needs opset {version} of domain '{domain}', and the model opset {known}")


def _instantiate(function: ir.Function, call: ir.Node, names: _Names) -> tuple[list[ir.Node], list[ir.Value]]:
    """A copy of the function's nodes that reads the call's inputs, and the values that stand for its outputs."""
    if len(call.inputs) > len(function.inputs):
        raise _refuse(function, f"takes {len(function.inputs)} inputs, and '{call.name}' gives {len(call.inputs)}")
    if len(call.outputs) > len(function.outputs):
        raise _refuse(function, f"has {len(function.outputs)} outputs, and '{call.name}' {len(call.outputs)}")
    given = {**{name: each for name, each in function.attributes.items() if each.value is not None}, **call.attributes}
    if any(attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for attribute in given.values()):
        raise _refuse(function, "takes a graph as an attribute")
    body = function.clone()
    for node in body.all_nodes():
        _resolve_references(node, given)
        node.metadata_props.update({**call.metadata_props, **node.metadata_props})
        node.name = names.new_node(node.name or "node")
        for value in node.outputs:
            value.name = names.new_value(value.name or "val")
    for index, formal in enumerate(body.inputs):
        actual = call.inputs[index] if index < len(call.inputs) else None
        for use in list(formal.uses()):
            use.node.replace_input_with(use.idx, actual)
    nodes, results = list(body), list(body.outputs)
    body.outputs.clear()
    body.remove(nodes)
    return nodes, results[: len(call.outputs)]


def _resolve_references(node: ir.Node, given: dict[str, ir.Attr]) -> None:
    """Puts the values of the call in the place of the function's parameters; what the call leaves out is left out."""
    for name, attribute in list(node.attributes.items()):
        if attribute.is_ref():
            value = given.get(attribute.ref_attr_name or "")
            if value is None:
                del node.attributes[name]
            else:
                node.attributes[name] = ir.Attr(name, value.type, value.value, doc_string=value.doc_string)


class _Names:
    """Names that no node or value of the model has, with a number behind those that are taken."""

    def __init__(self, model: ir.Model) -> None:
        self._nodes = {node.name for node in model.graph.all_nodes()}
        self._values = {value.name for node in model.graph.all_nodes() for value in node.outputs}
        for graph in model.graphs():
            self._values.update(value.name for value in (*graph.inputs, *graph.initializers.values()))
        self._next: dict[tuple[bool, str], int] = {}

    def new_node(self, stem: str) -> str:
        return self._new(stem, self._nodes, (True, stem))

    def new_value(self, stem: str) -> str:
        return self._new(stem, self._values, (False, stem))

    def _new(self, stem: str, taken: set[str | None], key: tuple[bool, str]) -> str:
        name, number = stem, self._next.get(key, 1)
        while name in taken:
            number += 1
            name = f"{stem}_{number}"
        self._next[key] = number
        taken.add(name)
        return name


def _align_opsets(function: ir.Function, imports: dict[str, int]) -> None:
    """Moves a function to the model's opset where each of its ops means the same in both."""
    for domain, version in list(function.opset_imports.items()):
        target = imports.get(domain, version)
        nodes = [node for node in function.all_nodes() if node.domain == domain]
        if target != version and all(_means_the_same(node, version, target) for node in nodes):
            function.opset_imports[domain] = target


def _means_the_same(node: ir.Node, version: int, other: int) -> bool:
    try:
        schemas = [defs.get_schema(node.op_type, opset, node.domain) for opset in (version, other)]
    except defs.SchemaError:
        return False
    return schemas[0].since_version == schemas[1].since_version


def _separate_outputs(function: ir.Function) -> None:
    """Gives each function output its own node, because one that is passed through is a value of the caller's."""
    seen: set[ir.Value] = set()
    for index, output in enumerate(function.outputs):
        if output in seen or output.producer() is None:
            copy = ir.node("Identity", [output])
            function.append(copy)
            function.outputs[index] = copy.outputs[0]
        seen.add(output)
