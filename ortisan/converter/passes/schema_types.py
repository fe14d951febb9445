"""Element types of ops without a rule of shape inference, from what ONNX and ONNX Runtime declare of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
from onnx import defs
from onnx_shape_inference import ShapeInferenceContext, registry

_DOMAINS = frozenset({"", "ai.onnx.ml", "com.microsoft"})
_NAMES = {"float": "FLOAT", "double": "DOUBLE", "bool": "BOOL", "string": "STRING"}


@dataclass(frozen=True)
class _Schema:
    """The parts of an op's declaration that types follow from: type strings, or names of type parameters."""

    since: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    allowed: dict[str, tuple[str, ...]]
    has_body: bool


@functools.cache
def _schemas() -> dict[tuple[str, str], tuple[_Schema, ...]]:
    found: dict[tuple[str, str], list[_Schema]] = {}
    standard: list[Any] = list(defs.get_all_schemas_with_history())
    for schema in standard:
        body = schema.has_function or schema.has_context_dependent_function
        found.setdefault((schema.domain, schema.name), []).append(_read(schema, "type_str", body))
    for schema in _runtime_schemas():
        if (schema.domain, schema.name) not in found or schema.domain not in ("", "ai.onnx.ml"):
            found.setdefault((schema.domain, schema.name), []).append(_read(schema, "typeStr", False))
    return {key: tuple(sorted(group, key=lambda each: each.since)) for key, group in found.items()}


def _runtime_schemas() -> Sequence[Any]:
    """What ONNX Runtime declares, with the ops of its own; nothing where it is not installed."""
    try:
        from onnxruntime.capi import onnxruntime_pybind11_state as state
    except ImportError:
        return ()
    listing = getattr(state, "get_all_operator_schema", None)
    return () if listing is None else tuple(listing())


def _read(schema: Any, type_name: str, has_body: bool) -> _Schema:
    inputs, outputs = (tuple(getattr(each, type_name) for each in side) for side in (schema.inputs, schema.outputs))
    allowed = {each.type_param_str: tuple(each.allowed_type_strs) for each in schema.type_constraints}
    return _Schema(schema.since_version, inputs, outputs, allowed, has_body)


def is_known_op(domain: str, op_type: str) -> bool:
    """False for an op of a domain of ONNX or ONNX Runtime that neither of them has; other domains are anybody's."""
    return (
        domain not in _DOMAINS
        or (domain == "com.microsoft" and not _runtime_schemas())
        or ((domain, op_type) in _schemas())
    )


def register_schema_types() -> None:
    """Adds a rule for every op of a known domain that has none, unless it is defined by other ops."""
    for (domain, op_type), schemas in _schemas().items():
        if domain in _DOMAINS and not registry.has(domain, op_type) and not any(each.has_body for each in schemas):
            registry.register(domain, op_type, since_version=1)(_infer_types)


def _infer_types(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    version = ctx.get_opset_version(node.domain)
    known = [each for each in _schemas()[node.domain, node.op_type] if each.since <= version]
    if not known:
        return
    schema = known[-1]
    for value, text in zip(node.outputs, schema.outputs, strict=False):
        dtype = _element_type(text, schema, node)
        if dtype is not None:
            ctx.set_dtype(value, dtype)


def _element_type(text: str, schema: _Schema, node: ir.Node) -> ir.DataType | None:
    """The element type of a declared type: as written, that of an input with the same parameter, or the only choice."""
    if text.startswith("tensor("):
        name = text[len("tensor(") : -1]
        return ir.DataType.__members__.get(_NAMES.get(name, name.upper()))
    for value, other in zip(node.inputs, schema.inputs, strict=False):
        if other == text and value is not None and value.dtype is not None:
            return value.dtype
    choices = schema.allowed.get(text, ())
    return _element_type(choices[0], schema, node) if len(choices) == 1 and choices[0] != text else None
