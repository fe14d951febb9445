"""ONNX -> op graph, one module per family of ONNX ops. Importing the package registers all entries."""

from __future__ import annotations

from ortisan.registry.lower import (
    attention,
    block_quantized,
    cache,
    contrib_attention,
    elementwise,
    gather,
    grouped_query,
    images,
    move,
    private,
    products,
    reduce,
    rotary,
    rows,
)

__all__ = [
    "attention",
    "block_quantized",
    "cache",
    "contrib_attention",
    "elementwise",
    "gather",
    "grouped_query",
    "images",
    "move",
    "private",
    "products",
    "reduce",
    "rotary",
    "rows",
]
