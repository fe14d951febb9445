"""Checks that a graph is well-formed: names, order, scopes, opsets, and each node against its ONNX schema.

Nodes whose op has no schema (contrib ops, custom domains) pass: whether they can be compiled is not asked here.
"""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
from onnx import checker, defs

from ortisan.errors import ModelError

_MOST_VERSION = 2**31


def check_structure(model: ir.Model, *, sort: bool = True) -> None:
    """Raises `ModelError` at the first thing wrong. Sorts nodes topologically unless `sort` is off."""
    if not 0 < model.ir_version < _MOST_VERSION:
        raise ModelError(f"the model has the IR version {model.ir_version}, which is none")
    _check_opsets(model.opset_imports, "the model")
    _check_values(model.graph, frozenset())
    if sort:
        _sort(model.graph)
    _check_inputs(model.graph)
    _check_nodes(model.graph, model)
    for function in model.functions.values():
        _check_opsets(function.opset_imports, f"function '{function.name}'")
        _check_values(function.graph, frozenset())
        if sort:
            _sort(function.graph)
        _check_nodes(function, model)


def _check_opsets(imports: dict[str, int], what: str) -> None:
    newest = defs.onnx_opset_version()
    for domain, number in imports.items():
        if not 0 <= number < _MOST_VERSION:
            raise ModelError(f"{what} needs opset {number} of domain '{domain}', which is none")
    version = imports.get("", 0)
    if version > newest:
        raise ModelError(
            f"{what} needs opset {version}, but the installed onnx {onnx.__version__} knows {newest} at most; "
            "update onnx or export with an older opset"
        )


def _check_inputs(graph: ir.Graph) -> None:
    for value in graph.inputs:
        if value.type is None:
            raise ModelError(f"graph input '{value.name}' has no type")


def _check_values(graph: ir.Graph, outer: frozenset[ir.Value]) -> None:
    """Every name is defined once in its graph, and every value used is defined in the graph or around it."""
    defined: dict[str, ir.Value] = {}
    values = [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
    for value in values:
        if not value.name:
            continue
        if defined.setdefault(value.name, value) is not value:
            raise ModelError(f"value '{value.name}' is defined more than once in graph '{graph.name}'")
    for value in graph.initializers.values():
        if value.const_value is None:
            raise ModelError(f"initializer '{value.name}' has no data")
    known = outer | frozenset(values)
    for node in graph:
        where = f"node '{node.name}' ({node.op_type})" if node.name else f"a node of type {node.op_type}"
        if not node.op_type:
            raise ModelError(f"node '{node.name}' has no op type")
        for used in node.inputs:
            if used is not None and used not in known:
                raise ModelError(f"{where} uses value '{used.name}', which nothing produces")
        for subgraph in _subgraphs(node):
            _check_values(subgraph, known)
    for output in graph.outputs:
        if output not in known:
            raise ModelError(f"graph output '{output.name}' is not produced by any node")


def _subgraphs(node: ir.Node) -> list[ir.Graph]:
    graphs: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            graphs.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            graphs.extend(attribute.as_graphs())
    return graphs


def _sort(graph: ir.Graph) -> None:
    try:
        graph.sort()
    except ValueError as error:
        raise ModelError(f"graph '{graph.name}' has a cycle") from error


def _check_nodes(graph: ir.Graph | ir.Function, model: ir.Model) -> None:
    imports = graph.opset_imports if isinstance(graph, ir.Function) else model.opset_imports
    context = checker.C.CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = dict(imports)
    for node in ir.traversal.RecursiveGraphIterator(graph):
        if node.domain not in imports:
            raise ModelError(
                f"node '{node.name}' ({node.op_type}) is of domain '{node.domain}', which the model does not import"
            )
        schema = _schema(node, imports[node.domain])
        if schema is not None:
            _check_attribute_types(node, schema)
            _check_node(node, context)


def _schema(node: ir.Node, version: int) -> defs.OpSchema | None:
    if not defs.has(node.op_type, node.domain):
        return None
    try:
        schema = defs.get_schema(node.op_type, version, node.domain)
    except defs.SchemaError:
        return None
    return None if schema.deprecated else schema


def _check_attribute_types(node: ir.Node, schema: defs.OpSchema) -> None:
    """The checker is not asked about nodes that hold graphs or tensors, and a wrong kind of those would be misread."""
    for name, attribute in node.attributes.items():
        declared = schema.attributes.get(name)
        wanted: Any = None if declared is None else declared.type
        if wanted is not None and wanted.name != attribute.type.name:
            raise ModelError(
                f"attribute '{name}' of node '{node.name}' ({node.op_type}) is of type {attribute.type.name}, "
                f"expected {wanted.name}"
            )


def _check_node(node: ir.Node, context: checker.C.CheckerContext) -> None:
    if any(attribute.is_ref() or attribute.type in _UNCHECKED_ATTRIBUTES for attribute in node.attributes.values()):
        return
    try:
        checker.check_node(ir.to_proto(node), context)
    except checker.ValidationError as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), "invalid")
        raise ModelError(f"node '{node.name}' ({node.op_type}) is invalid: {reason.strip()}") from error


# Subgraphs are checked through their own nodes; tensors may be large, or in a file that the checker can't find.
_UNCHECKED_ATTRIBUTES = frozenset(
    {
        ir.AttributeType.GRAPH,
        ir.AttributeType.GRAPHS,
        ir.AttributeType.TENSOR,
        ir.AttributeType.TENSORS,
        ir.AttributeType.SPARSE_TENSOR,
        ir.AttributeType.SPARSE_TENSORS,
    }
)
