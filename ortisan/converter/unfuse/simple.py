"""Unfuses the small contrib ops of com.microsoft: skip and embedding layer norms, the gelus, FusedMatMul, FusedGemm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ortisan.converter.unfuse.build import Refusal, StandardOps

Outputs = Sequence[ir.Value | None]


def required(node: ir.Node, index: int, name: str) -> ir.Value:
    value = optional(node, index)
    if value is None:
        raise Refusal(f"input '{name}' is missing")
    return value


def optional(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def is_used(node: ir.Node, index: int) -> bool:
    return index < len(node.outputs) and bool(node.outputs[index].uses() or node.outputs[index].is_graph_output())


def unfuse_skip_layer_norm(node: ir.Node, ops: StandardOps) -> Outputs:
    """layer_norm(input + skip + bias); the fourth output is the sum."""
    x, skip, scale = required(node, 0, "input"), required(node, 1, "skip"), required(node, 2, "gamma")
    if is_used(node, 1) or is_used(node, 2):
        raise Refusal("its mean or inverse deviation output is used")
    total = ops.add(x, skip)
    if (bias := optional(node, 4)) is not None:
        total = ops.add(total, bias)
    normal = ops.layer_norm(total, scale, optional(node, 3), node.attributes.get_float("epsilon", 1e-12))
    return normal, None, None, total


def unfuse_embed_layer_norm(node: ir.Node, ops: StandardOps) -> Outputs:
    """layer_norm(word[ids] + position[positions or 0..S-1] + segment[segment_ids]); also mask counts, and the sum."""
    ids, words, positions = (
        required(node, 0, "input_ids"),
        required(node, 2, "word_embedding"),
        required(node, 3, "position_embedding"),
    )
    total = ops.op("Gather", [words, ids])
    position_ids = optional(node, 8)
    if position_ids is not None:
        position = ops.op("Gather", [positions, position_ids])
    else:
        position = _first_rows(positions, ids, ops)
    total = ops.add(ops.typed(total, words), ops.typed(position, words))
    segment_ids, segments = optional(node, 1), optional(node, 4)
    if (segment_ids is None) != (segments is None):
        raise Refusal("only one of its segment ids and segment embedding is given")
    if segment_ids is not None and segments is not None:
        total = ops.add(total, ops.typed(ops.op("Gather", [segments, segment_ids]), segments))
    scale, bias = required(node, 5, "gamma"), required(node, 6, "beta")
    normal = ops.layer_norm(total, scale, bias, node.attributes.get_float("epsilon", 1e-12))
    counts = _mask_counts(node, ids, ops) if is_used(node, 1) else None
    return normal, counts, total


def _first_rows(table: ir.Value, ids: ir.Value, ops: StandardOps) -> ir.Value:
    """table[0:S] where ids is [B,S]."""
    if ops.opset < 10:
        raise Refusal(f"positions can't be written in opset {ops.opset}")
    length = _extent(ids, 1, ops)
    zero = ops.constant(np.array([0], np.int64), "start")
    return ops.op("Slice", [table, zero, length, zero])


def _extent(x: ir.Value, axis: int, ops: StandardOps) -> ir.Value:
    """One dim of x, as a vector of one number."""
    index = ops.constant(np.array([axis], np.int64), "axis")
    return ops.op("Gather", [ops.op("Shape", [x]), index], {"axis": 0})


def _mask_counts(node: ir.Node, ids: ir.Value, ops: StandardOps) -> ir.Value:
    """The number of ones in each row of the mask; zeros without a mask."""
    mask = optional(node, 7)
    if mask is None:
        if ops.opset < 9:
            raise Refusal(f"its mask_index can't be written in opset {ops.opset}")
        return ops.op("ConstantOfShape", [_extent(ids, 0, ops)], {"value": ir.tensor(np.zeros(1, np.int32))})
    ones = ops.op("Equal", [mask, ops.constant(np.array(1, np.int32), "one")])
    return ops.reduce_sum(ops.cast(ones, ir.DataType.INT32), [1], keepdims=False)


def unfuse_gelu(node: ir.Node, ops: StandardOps) -> Outputs:
    return [ops.gelu(required(node, 0, "X"), tanh=False)]


def unfuse_bias_gelu(node: ir.Node, ops: StandardOps) -> Outputs:
    return [ops.gelu(ops.add(required(node, 0, "A"), required(node, 1, "B")), tanh=False)]


def unfuse_fast_gelu(node: ir.Node, ops: StandardOps) -> Outputs:
    x, bias = required(node, 0, "X"), optional(node, 1)
    return [ops.gelu(x if bias is None else ops.add(x, bias), tanh=True)]


def unfuse_fused_matmul(node: ir.Node, ops: StandardOps) -> Outputs:
    """alpha * (A or A^T) @ (B or B^T), transposing the last two axes."""
    a, b = required(node, 0, "A"), required(node, 1, "B")
    if node.attributes.get_int("transBatchA", 0) or node.attributes.get_int("transBatchB", 0):
        raise Refusal("transBatchA and transBatchB are not supported")
    if node.attributes.get_int("transA", 0):
        a = _transpose_last_two(a, ops)
    if node.attributes.get_int("transB", 0):
        b = _transpose_last_two(b, ops)
    product = ops.matmul(a, b)
    alpha = node.attributes.get_float("alpha", 1.0)
    return [product if alpha == 1.0 else ops.mul(product, ops.like(alpha, a, "alpha"))]


def unfuse_fused_gemm(node: ir.Node, ops: StandardOps) -> Outputs:
    """Gemm, then its activation."""
    activation = node.attributes.get_string("activation", "")
    if activation not in ("Relu", "Sigmoid", "Tanh"):
        raise Refusal(f"its activation '{activation}' is not supported")
    gemm = {name: node.attributes[name] for name in ("alpha", "beta", "transA", "transB") if name in node.attributes}
    product = ops.op("Gemm", node.inputs, {name: attribute.value for name, attribute in gemm.items()})
    return [ops.op(activation, [product])]


def _transpose_last_two(x: ir.Value, ops: StandardOps) -> ir.Value:
    if x.shape is None:
        raise Refusal(f"the rank of '{x.name}' is unknown")
    rank = x.shape.rank()
    if rank < 2:
        raise Refusal(f"'{x.name}' is to be transposed, but has {rank} dims")
    return ops.transpose(x, [*range(rank - 2), rank - 1, rank - 2])
