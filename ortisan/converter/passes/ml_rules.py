"""Shapes of the ops of ai.onnx.ml. A row of features may stand alone: ONNX Runtime takes it for a batch of one."""

from __future__ import annotations

import math

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext

from ortisan.converter.passes.opaque import Rule

Dim = int | ir.SymbolicDim
_FLOAT, _INT64, _STRING = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.STRING


def _first(node: ir.Node) -> ir.Value | None:
    return node.inputs[0] if node.inputs else None


def _rows(x: ir.Value) -> Dim | None:
    """The size of the batch; None for shapes that are neither a row nor a batch of rows."""
    if x.shape is None or x.shape.rank() not in (1, 2):
        return None
    return 1 if x.shape.rank() == 1 else x.shape[0]


def _infer_float_like_input(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    x = _first(node)
    if x is not None:
        ctx.set_shape_and_dtype(node.outputs[0], x.shape, _FLOAT)


def _infer_like_input(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    x = _first(node)
    if x is not None:
        ctx.set_shape_and_dtype(node.outputs[0], x.shape, x.dtype)


def _infer_category_mapper(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Strings become numbers, and numbers strings."""
    x = _first(node)
    if x is not None and x.dtype is not None:
        ctx.set_shape_and_dtype(node.outputs[0], x.shape, _INT64 if x.dtype == _STRING else _STRING)


def _infer_classifier(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """A label and a row of scores for each row; how many scores depends on the kind of classifier."""
    x = _first(node)
    rows = None if x is None else _rows(x)
    labels = ("classlabels_strings", "classlabels_string")
    words = any(name in node.attributes and len(node.attributes[name].value) > 0 for name in labels)
    ctx.set_shape_and_dtype(node.outputs[0], None if rows is None else ir.Shape([rows]), _STRING if words else _INT64)
    if len(node.outputs) > 1:
        scores = None if rows is None else ir.Shape([rows, ctx.new_symbolic_dim()])
        ctx.set_shape_and_dtype(node.outputs[1], scores, _FLOAT)


def _infer_regressor(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    x = _first(node)
    rows = None if x is None else _rows(x)
    targets = node.attributes.get_int("n_targets", None) or node.attributes.get_int("targets", 1)
    ctx.set_shape_and_dtype(node.outputs[0], None if rows is None else ir.Shape([rows, targets]), _FLOAT)


def _infer_one_hot(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """One more axis, with a place for each category."""
    x = _first(node)
    if x is None:
        return
    sizes = [len(node.attributes[name].value) for name in ("cats_int64s", "cats_strings") if name in node.attributes]
    shape = None if x.shape is None or not any(sizes) else ir.Shape([*x.shape, max(sizes)])
    ctx.set_shape_and_dtype(node.outputs[0], shape, _FLOAT)


def _infer_feature_vectorizer(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    x = _first(node)
    rows = None if x is None else _rows(x)
    width = sum(node.attributes.get_ints("inputdimensions", ()))
    shape = None if rows is None else ir.Shape([rows, width or ctx.new_symbolic_dim()])
    ctx.set_shape_and_dtype(node.outputs[0], shape, _FLOAT)


def _infer_feature_extractor(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """All indices select along the last axis; a vector is taken for a matrix of one row."""
    x, indices = node.inputs
    if x is None or x.shape is None or indices is None or indices.shape is None:
        return
    rows = x.shape[:-1] if x.shape.rank() > 1 else (1,)
    ctx.set_shape_and_dtype(node.outputs[0], ir.Shape([*rows, math.prod(indices.shape)]), x.dtype)


def _infer_nothing(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """A map, or what is read from one."""


ML_RULES: dict[str, Rule] = {
    "ArrayFeatureExtractor": _infer_feature_extractor,
    "CastMap": _infer_nothing,
    "CategoryMapper": _infer_category_mapper,
    "DictVectorizer": _infer_nothing,
    "FeatureVectorizer": _infer_feature_vectorizer,
    "Imputer": _infer_like_input,
    "LinearClassifier": _infer_classifier,
    "LinearRegressor": _infer_regressor,
    "Normalizer": _infer_float_like_input,
    "OneHotEncoder": _infer_one_hot,
    "SVMClassifier": _infer_classifier,
    "SVMRegressor": _infer_regressor,
    "Scaler": _infer_float_like_input,
    "TreeEnsembleClassifier": _infer_classifier,
    "TreeEnsembleRegressor": _infer_regressor,
    "ZipMap": _infer_nothing,
}
