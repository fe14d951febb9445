"""Matrix products, with weights as they are and quantized."""

from __future__ import annotations

from ortisan.registry.lower.products import block_quantized, matmul

__all__ = ["block_quantized", "matmul"]
