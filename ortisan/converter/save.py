"""Writes a converted model: the graph in one file, the weights in another, aligned so that they can be mapped."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

_PAGE = 4096
_INLINE_BYTES = 1024


def save_with_external_data(model: ir.Model, folder: Path, name: str) -> None:
    """Writes NAME.onnx and, when there are weights, NAME.onnx.data. Small tensors stay in the graph."""
    own_external_tensors(model, _INLINE_BYTES)
    ir.save(
        model,
        folder / f"{name}.onnx",
        external_data=f"{name}.onnx.data",
        size_threshold_bytes=_INLINE_BYTES,
        alignment=_PAGE,
        align_threshold=0,
    )


def own_external_tensors(model: ir.Model, largest: int | None = None) -> None:
    """Reads tensors (all, or those of at most `largest` bytes) from their files into memory.

    onnx-ir's own functions for this close the files while arrays may still point into them.
    """
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor) and (largest is None or tensor.nbytes <= largest):
                value.const_value = ir.tensor(tensor.numpy().copy(), dtype=tensor.dtype, name=tensor.name)
