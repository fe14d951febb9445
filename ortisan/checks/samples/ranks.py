"""Ranks of inputs that declare none, guessed by what reads them."""

from __future__ import annotations

import onnx_ir as ir

from ortisan.checks.samples.shapes import dims_of, input_at

_WEIGHTED = frozenset({"Conv", "ConvInteger", "ConvTranspose"})
_RANKS = {"Gemm": 2, "GRU": 3, "LSTM": 3, "RNN": 3, "GlobalAveragePool": 4}
_USUAL = 2


def guess_ranks(graph: ir.Graph) -> None:
    """Gives every input tensor of unknown rank a shape of unknown dims."""
    for value in graph.inputs:
        if value.shape is None and isinstance(value.type, ir.TensorType) and not value.is_initializer():
            found = [rank for use in value.uses() if (rank := _rank(use.node, use.idx)) is not None]
            value.shape = ir.Shape([None] * (found[0] if found else _USUAL))


def _rank(node: ir.Node, index: int) -> int | None:
    if index > 0:
        return None
    if node.op_type in _WEIGHTED:
        weight = dims_of(input_at(node, 1))
        return len(weight) if weight is not None else None
    if node.op_type == "Transpose":
        return len(node.attributes.get_ints("perm", ())) or None
    if node.op_type in ("AveragePool", "MaxPool"):
        return len(node.attributes.get_ints("kernel_shape", ())) + 2
    return _RANKS.get(node.op_type)
