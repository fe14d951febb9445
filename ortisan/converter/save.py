"""Writes a converted model: the graph in one file, the weights in another, aligned so that they can be mapped."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

_PAGE = 4096
_INLINE_BYTES = 1024


def save_with_external_data(model: ir.Model, folder: Path, name: str) -> None:
    """Writes NAME.onnx and, when there are weights, NAME.onnx.data. Small tensors stay in the graph."""
    ir.save(
        model,
        folder / f"{name}.onnx",
        external_data=f"{name}.onnx.data",
        size_threshold_bytes=_INLINE_BYTES,
        alignment=_PAGE,
        align_threshold=0,
    )
