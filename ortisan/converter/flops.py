"""Estimates the work of ONNX nodes. Symbolic dims count as a typical size."""

from __future__ import annotations

import functools
import math

import onnx_ir as ir

from ortisan.converter.read.bodies import bodies
from ortisan.registry.dims import TYPICAL_DIM

_PRODUCTS = frozenset({"MatMul", "MatMulInteger", "QLinearMatMul", "FusedMatMul", "MatMulNBits"})
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def node_flops(node: ir.Node) -> int:
    """Estimates floating-point operations from the shapes. What has no shape counts as its largest input, or so.

    Nodes with graphs of their own count as nothing: the nodes inside do the work.
    """
    if bodies(node):
        return 0
    sides = [typical_dims(value) for value in node.inputs]
    known = [dims for dims in sides if dims is not None]
    result = typical_dims(node.outputs[0]) if node.outputs else ()
    if result is None:
        result = max(known, key=math.prod, default=_UNKNOWN)
    elements = math.prod(result)
    first, second = (sides[i] if i < len(sides) else None for i in (0, 1))
    if node.op_type in _PRODUCTS and (first or second):
        inner = first[-1] if first else second[0] if second else 1
        return 2 * elements * inner
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


_UNKNOWN = (TYPICAL_DIM, TYPICAL_DIM)


def typical_dims(value: ir.Value | None) -> tuple[int, ...] | None:
    """The dims of a value, symbols at a typical size; None if its rank is not known."""
    if value is None or value.shape is None:
        return None
    return tuple(max(dim if isinstance(dim, int) else _typical(dim.value), 0) for dim in value.shape)


@functools.lru_cache(maxsize=4096)
def _typical(text: str | None) -> int:
    if text is None:
        return TYPICAL_DIM
    dim = ir.SymbolicDim(text)
    size = dim.evaluate(dict.fromkeys(dim.free_symbols(), TYPICAL_DIM))
    return size if isinstance(size, int) else TYPICAL_DIM
