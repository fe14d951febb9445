"""Attention ops, of ONNX, of com.microsoft and of the converter's pattern."""

from __future__ import annotations

from ortisan.registry.lower.attention import contrib, grouped_query, private, standard

__all__ = ["contrib", "grouped_query", "private", "standard"]
