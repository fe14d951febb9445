"""ONNX -> op graph, by the families of registry/ops. Importing the package registers all entries."""

from __future__ import annotations

from ortisan.registry.lower import (
    attention,
    cache,
    elementwise,
    gather,
    generate,
    images,
    move,
    products,
    reduce,
    rotary,
    rows,
    sampling,
)

__all__ = [
    "attention",
    "cache",
    "elementwise",
    "gather",
    "generate",
    "images",
    "move",
    "products",
    "reduce",
    "rotary",
    "rows",
    "sampling",
]
