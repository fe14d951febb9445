"""Unfuses com.microsoft Attention, in the meaning of ORT's CPU kernel.

    q, k, v = split(x @ W + b), each [B,S,H*D] -> [B,H,S,D]
    logits  = scale * q @ k^T + mask + attention_bias
    output  = softmax(logits) @ v -> [B,S,H*Dv]

The mask adds mask_filter_value (-10000) where a key is hidden; it is finite, so a row that sees nothing is not NaN.
An attention with a past stays as it is: registry/lower/attention/contrib.py knows more of it.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx_ir as ir

from ortisan.converter.unfuse.build import Array, Refusal, StandardOps
from ortisan.converter.unfuse.simple import Outputs, is_used, optional, required

_DEFAULT_FILTER = -10000.0


def unfuse_attention(node: ir.Node, ops: StandardOps) -> Outputs:
    x, weights, bias = required(node, 0, "input"), required(node, 1, "weights"), optional(node, 2)
    _refuse_what_is_not_written_here(node)
    heads = node.attributes.get_int("num_heads", 0)
    sizes = _hidden_sizes(node, weights)
    if heads <= 0 or any(size % heads for size in sizes) or sizes[0] != sizes[1]:
        raise Refusal(f"its hidden sizes {sizes} don't fit its {heads} heads")
    scale = node.attributes.get_float("scale", 0.0) or 1.0 / math.sqrt(sizes[0] // heads)
    query, key, value = (
        ops.transpose(ops.reshape(part, [0, 0, heads, size // heads]), [0, 2, 1, 3])
        for part, size in zip(_project(x, weights, bias, sizes, ops), sizes, strict=True)
    )
    logits = ops.mul(ops.matmul(query, ops.transpose(key, [0, 1, 3, 2])), ops.like(scale, x, "scale"))
    mask, attention_bias = _mask(node, x, ops), optional(node, 5)
    if mask is not None and attention_bias is not None:
        mask = ops.add(mask, attention_bias)
    elif mask is None:
        mask = attention_bias
    if mask is not None:
        logits = ops.add(logits, mask)
    weights_of_keys = ops.typed(ops.op("Softmax", [logits], {"axis": 3 if ops.opset < 13 else -1}), x)
    context = ops.transpose(ops.matmul(weights_of_keys, value), [0, 2, 1, 3])
    return [ops.reshape(context, [0, 0, sizes[2]])]


def _refuse_what_is_not_written_here(node: ir.Node) -> None:
    if optional(node, 4) is not None or is_used(node, 1):
        raise Refusal("past key/values are not supported")
    if optional(node, 6) is not None or bool(node.attributes.get_int("past_present_share_buffer")):
        raise Refusal("a shared past/present buffer is not supported")
    if node.attributes.get_int("do_rotary", 0):
        raise Refusal("do_rotary is not supported")


def _hidden_sizes(node: ir.Node, weights: ir.Value) -> tuple[int, int, int]:
    declared = node.attributes.get_ints("qkv_hidden_sizes", None)
    if declared:
        query, key, value = declared
        return query, key, value
    columns = weights.shape[1] if weights.shape is not None and weights.shape.rank() == 2 else None
    if not isinstance(columns, int) or columns % 3:
        raise Refusal(f"the shape {weights.shape} of its weights is not [hidden, 3 * hidden]")
    return columns // 3, columns // 3, columns // 3


def _project(
    x: ir.Value, weights: ir.Value, bias: ir.Value | None, sizes: tuple[int, int, int], ops: StandardOps
) -> list[ir.Value]:
    """Writes three products, as in a model that was never fused; this needs constant packed weights."""
    packed = weights.const_value
    packed_bias = None if bias is None else bias.const_value
    if packed is None or (bias is not None and packed_bias is None):
        raise Refusal("its weights or bias are not constants")
    ends = np.cumsum(sizes)
    if tuple(packed.shape.numpy())[1:] != (int(ends[-1]),):
        raise Refusal(f"the shape {packed.shape} of its weights does not fit its hidden sizes {sizes}")
    matrix: Array = packed.numpy()
    parts = []
    for letter, end, size in zip("qkv", ends, sizes, strict=True):
        columns = np.ascontiguousarray(matrix[:, end - size : end])
        part = ops.matmul(x, ops.constant(columns, f"{letter}_weight"))
        if packed_bias is not None:
            part = ops.add(part, ops.constant(packed_bias.numpy()[end - size : end].copy(), f"{letter}_bias"))
        parts.append(part)
    return parts


def _mask(node: ir.Node, x: ir.Value, ops: StandardOps) -> ir.Value | None:
    """The sum of padding and causal mask, broadcastable to [B,H,S,T], or None."""
    mask_index = optional(node, 3)
    filter_value = node.attributes.get_float("mask_filter_value", _DEFAULT_FILTER)
    mask = None if mask_index is None else _padding_mask(mask_index, x, filter_value, ops)
    if not node.attributes.get_int("unidirectional", 0):
        return mask
    causal = _causal_mask(x, ops)
    return causal if mask is None else ops.add(mask, causal)


def _padding_mask(mask_index: ir.Value, x: ir.Value, filter_value: float, ops: StandardOps) -> ir.Value:
    rank = None if mask_index.shape is None else mask_index.shape.rank()
    if rank in (2, 3):
        zero = ops.constant(np.array(0, np.int32), "zero")
        visible = ops.op("Greater", [ops.cast(mask_index, ir.DataType.INT32), zero])
        visible = ops.unsqueeze(visible, [1, 2] if rank == 2 else [1])
    elif rank == 1:
        visible = _visible_by_length(mask_index, x, ops)
    else:
        raise Refusal(f"a mask_index of shape {mask_index.shape} is not supported")
    return _additive(visible, x, filter_value, ops)


def _additive(visible: ir.Value, x: ir.Value, masked: float, ops: StandardOps) -> ir.Value:
    choices = [ops.like(0.0, x, "visible"), ops.like(masked, x, "masked")]
    return ops.typed(ops.op("Where", [visible, *choices]), x)


def _causal_mask(x: ir.Value, ops: StandardOps) -> ir.Value:
    """[S,S]: the lowest number of the type (not mask_filter_value) where the key comes after the query."""
    if x.dtype is None:
        raise Refusal(f"the type of '{x.name}' is unknown")
    keys = _positions(x, ops)
    hidden = ops.op("Less", [ops.unsqueeze(keys, [1]), keys])
    lowest = float(ml_dtypes.finfo(x.dtype.numpy()).min)
    return _additive(ops.op("Not", [hidden]), x, lowest, ops)


def _visible_by_length(lengths: ir.Value, x: ir.Value, ops: StandardOps) -> ir.Value:
    """[B] key counts -> [B,1,1,T] booleans. Twice as many entries would be ends and starts, so B must fit."""
    if lengths.shape is None or x.shape is None or lengths.shape[0] != x.shape[0]:
        raise Refusal(f"a mask_index of shape {lengths.shape} is not known to hold one length per batch element")
    counts = ops.unsqueeze(ops.cast(lengths, ir.DataType.INT32), [1, 2, 3])
    return ops.op("Less", [_positions(x, ops), counts])


def _positions(x: ir.Value, ops: StandardOps) -> ir.Value:
    """0 .. S-1 as int32, for x of [B,S,...]."""
    if ops.opset < 11:
        raise Refusal(f"positions can't be written in opset {ops.opset}")
    index = ops.constant(np.array(1, np.int64), "axis")
    length = ops.op("Gather", [ops.op("Shape", [x]), index], {"axis": 0})
    zero, one = ops.constant(np.array(0, np.int32), "zero"), ops.constant(np.array(1, np.int32), "one")
    return ops.op("Range", [zero, ops.cast(length, ir.DataType.INT32), one])
