"""ONNX nodes -> op graph, through the registry's entries. A node can be compiled when lowering it works."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ortisan.converter.passes.opaque import why_unknown
from ortisan.converter.passes.schema_types import is_known_op
from ortisan.converter.read.bodies import bodies, is_control_flow
from ortisan.registry import entries
from ortisan.registry.builder import Builder, is_constant
from ortisan.registry.dims import Dim, adopt, is_static, substitute, symbol, symbols_of
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import Graph, TensorType, Value
from ortisan.registry.refusal import Refused
from ortisan.registry.surprise import Surprise, surprises

# ONNX Runtime puts some of its own ops into the default domain of models whose opset lacks them.
_NO_SCHEMA_VERSION = 1


CONTROL_FLOW = "control flow stays in ONNX Runtime; what is inside of it is compiled by itself"


class Environment:
    """The op-graph value of each ONNX value, as far as it has been lowered. `outer` is that of the graph around it."""

    def __init__(self, graph: ir.Graph, opsets: Mapping[str, int], name: str, outer: Environment | None = None) -> None:
        self.graph = graph
        self.opsets = opsets
        self.builder = Builder(name)
        self.values: dict[ir.Value, Value | Refused] = {}
        self.outer = outer
        self._unknown: itertools.count[int] = itertools.count(1) if outer is None else outer._unknown

    def fresh_symbol(self) -> Dim:
        return symbol(f"unknown_{next(self._unknown)}")

    def declared_type(self, value: ir.Value) -> TensorType:
        """The type that the model or shape inference gives a value."""
        name = value.name or ""
        if value.dtype is None or value.shape is None:
            what = "type" if value.dtype is None else "rank"
            raise Refused(f"the {what} of '{name}' is not known, because {why_unknown(value)}")
        dtype = DType.from_onnx(int(value.dtype))
        if dtype is None:
            raise Refused(f"'{name}' has the element type {value.dtype.name.lower()}, which is not supported")
        type_ = TensorType(dtype, tuple(self._dim(dim) for dim in value.shape))
        type_.check()
        return type_

    def _dim(self, dim: int | ir.SymbolicDim) -> Dim:
        if isinstance(dim, int):
            return dim
        if dim.value is None:
            return self.fresh_symbol()
        return adopt(dim._expr)  # the parsed form of dim.value; onnx-ir has no public name for it

    def get(self, value: ir.Value) -> Value:
        """The lowered value; constants and outside values are added on first use."""
        found = self._known(value)
        if found is None:
            found = self.values[value] = self._enter(value)
        if isinstance(found, Refused):
            raise found
        return found

    def _known(self, value: ir.Value) -> Value | Refused | None:
        found = self.values.get(value)
        return self.outer._known(value) if found is None and self.outer is not None else found

    def _enter(self, value: ir.Value) -> Value | Refused:
        try:
            with surprises(Refused):
                type_ = self.declared_type(value)
                if value.is_initializer() and not value.is_graph_input() and value.const_value is not None:
                    array = value.const_value.numpy()
                    return self.builder.constant(array.astype(type_.dtype.numpy, copy=False), value.name or "")
                return self.builder.input(value.name or "", type_)
        except Surprise as surprise:
            return Refused(f"'{value.name}' can't be read ({surprise})")
        except Refused as refused:
            return refused

    def lower(self, node: ir.Node) -> None:
        """Adds the node's ops, or raises `Refused`."""
        try:
            with surprises(Refused):
                results = self._lower(node)
        except Surprise as surprise:
            raise Refused(f"{node.op_type} can't be lowered ({surprise})") from surprise
        self.values.update(zip(node.outputs, results, strict=False))

    def _lower(self, node: ir.Node) -> tuple[Value, ...]:
        if bodies(node):
            known = is_control_flow(node, self.opsets.get("", 1))
            raise Refused(CONTROL_FLOW if known else f"{node.op_type} contains a graph of its own")
        if not is_known_op(node.domain, node.op_type):
            raise Refused(f"neither ONNX nor ONNX Runtime has an op {node.op_type}{_of_domain(node)}: it can't run")
        self.builder.origin = node.name or node.op_type
        inputs = tuple(None if value is None else self.get(value) for value in node.inputs)
        version = since_version(node, self.opsets)
        used = tuple(bool(value.uses()) or value.is_graph_output() for value in node.outputs)
        site = entries.Site(node.op_type, version, inputs, read_attributes(node), used, self.builder)
        return entries.lower(node.domain, site)


def _of_domain(node: ir.Node) -> str:
    return f" in domain '{node.domain}'" if node.domain else ""


def since_version(node: ir.Node, opsets: Mapping[str, int]) -> int:
    """The opset in which the definition of the node's op appeared."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = node.version or opsets.get(domain, 1)
    try:
        return int(onnx.defs.get_schema(node.op_type, version, domain).since_version)
    except onnx.defs.SchemaError:
        return _NO_SCHEMA_VERSION


def read_attributes(node: ir.Node) -> dict[str, Any]:
    """Attribute values as Python numbers, strings, lists and arrays."""
    result: dict[str, Any] = {}
    for name, attribute in node.attributes.items():
        if not isinstance(attribute, ir.Attr) or attribute.is_ref():
            raise Refused(f"attribute '{name}' refers to a function's parameter")
        value = attribute.value
        if attribute.type is ir.AttributeType.TENSOR:
            value = attribute.as_tensor().numpy()
        elif attribute.type in (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS):
            value = list(value)
        result[name] = value
    return result


def probe(
    graph: ir.Graph,
    opsets: Mapping[str, int],
    left_out: Mapping[ir.Node, str],
    outer: Environment | None = None,
) -> tuple[Environment, dict[ir.Node, str]]:
    """Lowers the whole graph node by node. Returns the environment and, for each node that can't be compiled, why.

    Nodes that are left out are lowered too where possible, so that their shapes and shape arithmetic are known. What
    the graph reads of the graphs around it is in `outer`.
    """
    environment = Environment(graph, opsets, "probe", outer)
    for value in graph.inputs:
        environment.values[value] = environment._enter(value)
    reasons: dict[ir.Node, str] = {}
    for node in graph:
        try:
            environment.lower(node)
        except Refused as refused:
            reasons[node] = left_out.get(node, str(refused))
            for value in node.outputs:
                environment.values[value] = environment._enter(value)
        else:
            if node in left_out:
                reasons[node] = left_out[node]
    return environment, reasons


def lower_subgraph(
    name: str,
    nodes: Sequence[ir.Node],
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    *,
    probed: Environment,
    bounds: Mapping[str, tuple[int, int]],
) -> tuple[Graph, tuple[ir.Value, ...]]:
    """The op graph of some nodes of the probed graph, and which ONNX values feed its inputs.

    Raises `RefusedNode` when a node that lowered in the whole graph does not lower on its own.
    """
    try:
        with surprises(Refused, RefusedNode):
            return _lower_subgraph(name, nodes, inputs, outputs, probed=probed, bounds=bounds)
    except (Refused, Surprise) as reason:
        raise RefusedNode(nodes[-1], str(reason)) from reason


def _lower_subgraph(
    name: str,
    nodes: Sequence[ir.Node],
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    *,
    probed: Environment,
    bounds: Mapping[str, tuple[int, int]],
) -> tuple[Graph, tuple[ir.Value, ...]]:
    environment = Environment(probed.graph, probed.opsets, name)
    boundary = {value: probed.get(value) for value in inputs}
    tensors = [value for value in inputs if boundary[value].data is None]
    renamed = _bindable(boundary[value].type for value in tensors)
    for value in tensors:
        type_ = boundary[value].type
        shape = tuple(renamed.get(dim, dim) if not is_static(dim) else dim for dim in type_.shape)
        environment.values[value] = environment.builder.input(value.name or "", TensorType(type_.dtype, shape))
    bound = {n for v in environment.builder.inputs for dim in v.shape for n in symbols_of(dim)}
    for value in inputs:
        known = boundary[value]
        if known.data is not None:
            environment.values[value] = _enter_known(environment.builder, known, bound, renamed)
    for node in nodes:
        try:
            environment.lower(node)
        except Refused as refused:
            raise RefusedNode(node, str(refused)) from refused
    results = [environment.get(value) for value in outputs]
    used = {name for value in environment.builder.inputs for dim in value.shape for name in symbols_of(dim)}
    limits = {name: limit for name, limit in bounds.items() if name in used}
    return environment.builder.finish(results, [value.name or "" for value in outputs], limits), tuple(tensors)


class RefusedNode(Exception):
    """A node can't be part of the subgraph it was put into."""

    def __init__(self, node: ir.Node, reason: str) -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason


def _bindable(types: Iterable[TensorType]) -> dict[Dim, Dim]:
    """Makes fresh symbols for dims that can't be computed from plain symbols."""
    dims = [dim for type_ in types for dim in type_.shape if not is_static(dim)]
    plain = {dim.name for dim in dims if dim.is_Symbol}
    result: dict[Dim, Dim] = {}
    for dim in dims:
        if not dim.is_Symbol and not symbols_of(dim) <= plain:
            result.setdefault(dim, symbol(f"extent_{len(result)}"))
    return result


def _enter_known(builder: Builder, value: Value, bound: set[str], renamed: Mapping[Dim, Dim]) -> Value | Refused:
    """Recomputes an outside value whose elements are dims inside the subgraph, where the dims are known."""
    if is_constant(value) and value.data is not None:
        return builder.constant(value.data, value.name)
    data: Array = np.empty(value.data.shape if value.data is not None else (), dtype=object)
    for index, dim in np.ndenumerate(value.data if value.data is not None else data):
        inside = renamed.get(dim, substitute(dim, {})) if not is_static(dim) else dim
        if not symbols_of(inside) <= bound:
            return Refused(f"it needs the dim {dim}, which no input of the subgraph has")
        data[index] = inside
    return builder.from_dims(data, value.dtype)
