"""ONNX -> op graph, one module per family of ONNX ops. Importing the package registers all entries."""

from __future__ import annotations

from ortisan.registry.lower import (
    attention,
    block_quantized,
    cache,
    contrib_attention,
    conv,
    elementwise,
    grouped_query,
    index,
    matmul,
    norm,
    private,
    reduce,
    rotary,
    shape,
)

__all__ = [
    "attention",
    "block_quantized",
    "cache",
    "contrib_attention",
    "conv",
    "elementwise",
    "grouped_query",
    "index",
    "matmul",
    "norm",
    "private",
    "reduce",
    "rotary",
    "shape",
]
