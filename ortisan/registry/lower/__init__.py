"""ONNX -> op graph, one module per family of ONNX ops. Importing the package registers all entries."""

from __future__ import annotations

from ortisan.registry.lower import elementwise, index, matmul, norm, private, reduce, shape

__all__ = ["elementwise", "index", "matmul", "norm", "private", "reduce", "shape"]
