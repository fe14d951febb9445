"""The identity of a graph: everything that decides what code is generated for it, and nothing else.

Weights are not part of it (only their types and shapes), so that a retrained model has the same hash. Values that end
up in the code or steer shapes are: single numbers of any type, and integers and booleans of up to 1024 elements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from ortisan.errors import ModelError, OrtisanError
from ortisan.registry.surprise import Surprise, surprises

_MAX_STEERING_ELEMENTS = 1024


def model_hash(model: ir.Model) -> str:
    """Returns the sha256 of the graph as hex digits, the same in every process."""
    try:
        with surprises(OrtisanError):
            return _hash(model)
    except Surprise as surprise:
        raise ModelError(f"a constant of the model can't be read ({surprise})") from surprise


def _hash(model: ir.Model) -> str:
    digest = hashlib.sha256()
    for part in _model_parts(model):
        data = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _model_parts(model: ir.Model) -> Iterable[str | bytes]:
    yield "model"
    yield from _import_parts(model.opset_imports)
    yield from _graph_parts(model.graph)
    for identifier in sorted(model.functions):
        function = model.functions[identifier]
        yield from ("function", *identifier)
        yield from _import_parts(function.opset_imports)
        for name, attribute in sorted(function.attributes.items()):
            yield from _attribute_parts(name, attribute)
        yield from _graph_parts(function.graph)


def _import_parts(imports: Mapping[str, int]) -> Iterable[str]:
    for domain, version in sorted(imports.items()):
        yield from ("import", domain, str(version))


def _graph_parts(graph: ir.Graph) -> Iterable[str | bytes]:
    yield "inputs"
    for value in graph.inputs:
        yield from _value_parts(value)
    yield "initializers"
    for name in sorted(graph.initializers):
        value = graph.initializers[name]
        yield name
        if value.const_value is not None:
            yield from _tensor_parts(value.const_value, steering_only=True)
    for node in graph:
        yield from ("node", node.domain, node.op_type, node.overload, node.name or "")
        yield from (str(len(node.inputs)), *("" if value is None else value.name or "" for value in node.inputs))
        yield from (str(len(node.outputs)), *(value.name or "" for value in node.outputs))
        for name, attribute in sorted(node.attributes.items()):
            yield from _attribute_parts(name, attribute)
    yield "outputs"
    for value in graph.outputs:
        yield from _value_parts(value)


def _value_parts(value: ir.Value) -> Iterable[str]:
    yield from (value.name or "", str(value.type), str(value.shape))


def _tensor_parts(tensor: ir.TensorProtocol, *, steering_only: bool) -> Iterable[str | bytes]:
    yield from ("tensor", tensor.dtype.name, str(tensor.shape))
    if not steering_only or _steers(tensor):
        if tensor.dtype == ir.DataType.STRING:
            yield repr(tensor.numpy().tolist())
        else:
            yield tensor.tobytes()


def _steers(tensor: ir.TensorProtocol) -> bool:
    if tensor.size <= 1:
        return True
    integral = tensor.dtype.is_integer() or tensor.dtype == ir.DataType.BOOL
    return integral and tensor.size <= _MAX_STEERING_ELEMENTS


def _attribute_parts(name: str, attribute: ir.Attr) -> Iterable[str | bytes]:
    yield from ("attribute", name, attribute.type.name)
    if attribute.is_ref():
        yield from ("ref", str(attribute.ref_attr_name))
    elif attribute.type == ir.AttributeType.GRAPH:
        yield from _graph_parts(attribute.as_graph())
    elif attribute.type == ir.AttributeType.GRAPHS:
        for graph in attribute.as_graphs():
            yield from _graph_parts(graph)
    elif attribute.type == ir.AttributeType.TENSOR:
        yield from _tensor_parts(attribute.as_tensor(), steering_only=False)
    elif attribute.type == ir.AttributeType.TENSORS:
        for tensor in attribute.as_tensors():
            yield from _tensor_parts(tensor, steering_only=False)
    else:
        yield repr(attribute.value)
