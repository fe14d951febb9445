"""Symbolic shape inference: every value gets the type and shape that follow from the graph inputs.

Declared shapes of intermediate values are hints that may be stale, so they count only where nothing can be inferred.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import onnx_ir as ir
import sympy
from onnx_shape_inference import (
    OpUsageError,
    ShapeInferenceContext,
    ShapeInferenceError,
    infer_symbolic_shapes,
    registry,
)

from ortisan.converter.passes.loop_shapes import infer_loop, mend_carried
from ortisan.converter.read.symbols import ascending
from ortisan.errors import ModelError


def _infer_early_layer_norm(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """ORT's optimizer writes LayerNormalization in the default domain before opset 17, where ONNX has none."""
    x = node.inputs[0] if node.inputs else None
    if x is not None and x.shape is not None:
        ctx.set_shape_and_dtype(node.outputs[0], x.shape, x.dtype)


def _infer_feature_extractor(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """All indices select along the last axis; a vector is taken for a matrix of one row."""
    x, indices = node.inputs
    if x is None or x.shape is None or indices is None or indices.shape is None:
        return
    rows = x.shape[:-1] if x.shape.rank() > 1 else (1,)
    ctx.set_shape_and_dtype(node.outputs[0], ir.Shape([*rows, math.prod(indices.shape)]), x.dtype)


@functools.cache
def _register_own() -> None:
    """Replaces rules that the package lacks or defines differently."""
    registry.collect()
    registry.register("", "LayerNormalization", since_version=1)(_infer_early_layer_norm)
    registry.register("", "Loop", since_version=1)(infer_loop)
    registry.register("ai.onnx.ml", "ArrayFeatureExtractor", since_version=1)(_infer_feature_extractor)


def infer_shapes(model: ir.Model) -> None:
    """Sets type and shape of every value in place. Raises `ModelError` when a node's inputs contradict its op."""
    _register_own()
    values = [value for graph in model.graphs() for node in graph for value in node.outputs]
    before = {value: value.shape for value in values}
    found = {value: (value.type, value.const_value, dict(value.metadata_props)) for value in values}
    _infer_once(model, before)
    while mend_carried(model):
        for value, (kind, constant, notes) in found.items():
            value.type, value.const_value = kind, constant
            value.metadata_props.clear()
            value.metadata_props.update(notes)
        _infer_once(model, before)
    declared = {value: shape for value, shape in before.items() if shape is not None and _is_standard(value)}
    known = {name for value in model.graph.inputs for name in _symbols(value.shape)}
    for value, shape in declared.items():
        if value.shape is None:
            value.shape = _only_known(shape, known)
        elif value.shape.rank() == shape.rank():
            dims = zip(value.shape, _only_known(shape, known), strict=True)
            value.shape = ir.Shape([hint if _is_unknown(dim) else dim for dim, hint in dims])
    for graph in model.graphs():
        for node in graph:
            for value in node.outputs:
                if value.shape is not None and any(_is_number(dim) for dim in value.shape):
                    value.shape = ir.Shape([dim.evaluate({}) if _is_number(dim) else dim for dim in value.shape])
    _settle_minima(model)


def _infer_once(model: ir.Model, before: Mapping[ir.Value, ir.Shape | None]) -> None:
    """Infers from the graph inputs and from earlier shapes of values made by ops of other domains."""
    for value, shape in before.items():
        value.shape = None if _is_standard(value) else shape
    try:
        infer_symbolic_shapes(model, warn_on_missing=False)
    except (OpUsageError, ShapeInferenceError) as error:
        cause = error.__cause__ or error
        raise ModelError(f"shapes can't be inferred: {' '.join(str(cause).split())[:300]}") from error


def _is_standard(value: ir.Value) -> bool:
    node = value.producer()
    return node is not None and node.domain == ""


def _settle_minima(model: ir.Model) -> None:
    """Simplifies min(a, b) to a if the model declares a <= b, as for the filled part of a cache."""
    order = ascending(model)
    for graph in model.graphs() if order else ():
        for node in graph:
            for value in node.outputs:
                if value.shape is not None and any("Min" in str(dim) for dim in value.shape):
                    value.shape = ir.Shape([_settle_minimum(dim, order) for dim in value.shape])


def _settle_minimum(dim: int | ir.SymbolicDim, order: Sequence[str]) -> int | ir.SymbolicDim:
    if isinstance(dim, int) or dim.value is None:
        return dim
    parsed: Any = dim._expr  # the parsed form of dim.value; onnx-ir has no public name for it
    found = parsed.replace(
        lambda part: isinstance(part, sympy.Min) and all(str(argument) in order for argument in part.args),
        lambda part: min(part.args, key=lambda argument: order.index(str(argument))),
    )
    return int(found) if isinstance(found, sympy.Integer) else ir.SymbolicDim(found)


def _symbols(shape: ir.Shape | None) -> set[str]:
    return {name for dim in shape or () if isinstance(dim, ir.SymbolicDim) for name in dim.free_symbols()}


def _is_unknown(dim: int | ir.SymbolicDim) -> bool:
    return isinstance(dim, ir.SymbolicDim) and dim.value is None


def _is_number(dim: int | ir.SymbolicDim) -> TypeGuard[ir.SymbolicDim]:
    """Whether a computed dim is the same for all values of its symbols, as in 64*s // 16*s."""
    return isinstance(dim, ir.SymbolicDim) and dim.value is not None and not dim.free_symbols()


def _only_known(shape: ir.Shape, known: set[str]) -> ir.Shape:
    """Drops symbols that no graph input has: in a declared shape they are mere labels."""
    return ir.Shape(
        [None if isinstance(dim, ir.SymbolicDim) and not dim.free_symbols() <= known else dim for dim in shape]
    )
