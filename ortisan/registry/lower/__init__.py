"""ONNX -> op graph, one module per family of ONNX ops. Importing the package registers all entries."""

from __future__ import annotations

from ortisan.registry.lower import cache, elementwise, index, matmul, norm, private, reduce, shape

__all__ = ["cache", "elementwise", "index", "matmul", "norm", "private", "reduce", "shape"]
