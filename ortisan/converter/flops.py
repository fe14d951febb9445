"""Estimates the work of ONNX nodes. Symbolic dims count as a typical size."""

from __future__ import annotations

import math

import onnx_ir as ir

from ortisan.registry.dims import TYPICAL_DIM

_PRODUCTS = frozenset({"MatMul", "MatMulInteger", "QLinearMatMul", "FusedMatMul", "MatMulNBits"})
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def node_flops(node: ir.Node) -> int:
    """Estimates floating-point operations from the shapes; 0 if they are unknown."""
    result = _dims(node.outputs[0]) if node.outputs else None
    if result is None:
        return 0
    elements = math.prod(result)
    first, second = (_dims(node.inputs[i]) if i < len(node.inputs) else None for i in (0, 1))
    if node.op_type in _PRODUCTS and first:
        return 2 * elements * first[-1]
    if node.op_type == "Gemm" and first:
        return 2 * elements * first[0 if node.attributes.get_int("transA", 0) else -1]
    if node.op_type in ("Conv", "ConvInteger") and second:
        return 2 * elements * math.prod(second[1:])
    if node.op_type == "ConvTranspose" and first and second:
        return 2 * math.prod(first) * math.prod(second[1:])
    if node.op_type == "Attention" and second and len(second) > 2:
        return 4 * elements * second[-2]
    if node.op_type in _RECURRENT and first and second:
        return 4 * math.prod(first[:2]) * math.prod(second)
    return elements


def _dims(value: ir.Value | None) -> tuple[int, ...] | None:
    if value is None or value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else _typical(dim) for dim in value.shape)


def _typical(dim: ir.SymbolicDim) -> int:
    if dim.value is None:
        return TYPICAL_DIM
    size = dim.evaluate(dict.fromkeys(dim.free_symbols(), TYPICAL_DIM))
    return size if isinstance(size, int) else TYPICAL_DIM
