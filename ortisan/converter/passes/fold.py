"""Folds constants with onnxscript's folder."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer

from ortisan.converter.passes.cleanup import RANDOM_OPS, count_nodes
from ortisan.converter.passes.near_miss import NearMiss
from ortisan.registry.surprise import Surprise, surprises

MAX_GROWTH = 8 * 2**20
_UNLIMITED = 2**62
_COUNTED_SPLIT = 18
"""The folder writes Split as of this opset, with the number of pieces; before, that is the number of outputs."""
# Folding these would lose the quantized form of a weight.
_QUANTIZING = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})


def fold_constants(model: ir.Model, failures: list[NearMiss], largest: int = _UNLIMITED) -> int:
    """Computes nodes whose inputs are constants, unless that makes the model more than 8 MB larger per node.

    Constants of more than `largest` bytes are left alone. Returns how many nodes went. Where the folder fails it stops,
    and the reason is added to `failures`.
    """
    before = count_nodes(model)
    try:
        with surprises():
            optimizer.fold_constants(
                model, input_size_limit=largest, output_size_limit=largest, should_fold=_is_worth_folding
            )
    except Surprise as surprise:
        failures.append(NearMiss("fold constants", "", str(surprise)))
        common.NameFixPass()(model)
    if model.opset_imports.get("", 0) < _COUNTED_SPLIT:
        for node in model.graph.all_nodes():
            if node.op_type == "Split" and node.domain == "":
                node.attributes.pop("num_outputs", None)
    return before - count_nodes(model)


def _is_worth_folding(node: ir.Node) -> bool:
    if node.domain != "" or node.op_type in _QUANTIZING or node.op_type in RANDOM_OPS:
        return False
    if any(value is not None and value.dtype is ir.DataType.STRING for value in (*node.inputs, *node.outputs)):
        return False
    tensors = [value.const_value for value in node.inputs if value is not None]
    size_in = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    size_out = 0
    for value in node.outputs:
        if value.shape is None or value.dtype is None or not value.shape.is_static():
            return False
        elements = 1
        for dim in value.shape.numpy():
            elements *= dim
        size_out += int(elements * value.dtype.itemsize)
    return size_out - size_in <= MAX_GROWTH
