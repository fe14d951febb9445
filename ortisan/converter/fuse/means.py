"""Reads the means over the last axes in normalization formulas."""

from __future__ import annotations

import onnx_ir as ir

from ortisan.converter.fuse.formula import Mismatch
from ortisan.converter.fuse.scalar import constant_ints


def last_axes(means: list[ir.Value], x: ir.Value, opset: int) -> int:
    """How many of the last axes of `x` each of these ReduceMeans covers."""
    if x.shape is None:
        raise Mismatch(f"the rank of '{x.name}' is unknown")
    rank = x.shape.rank()
    axes, *others = (_axes(mean, rank, opset) for mean in means)
    if any(other != axes for other in others):
        raise Mismatch("its two means are over different axes")
    if axes != list(range(rank - len(axes), rank)) or not axes:
        raise Mismatch(f"its means are over axes {axes} of {rank}, not over the last ones")
    return len(axes)


def _axes(mean: ir.Value, rank: int, opset: int) -> list[int]:
    """The axes of a ReduceMean, counted from the front. They are an input from opset 18 on."""
    node = mean.producer()
    if node is None or node.attributes.get_int("keepdims", 1) != 1:
        raise Mismatch("a mean has keepdims=0")
    if opset >= 18:
        axes = constant_ints(node.inputs[1] if len(node.inputs) > 1 else None)
    else:
        declared = node.attributes.get_ints("axes", None)
        axes = None if declared is None else list(declared)
    if axes is None:
        raise Mismatch("the axes of a mean are not constants")
    return sorted(axis % rank for axis in axes)


def check_affine(x: ir.Value, count: int, **vectors: ir.Value | None) -> None:
    """Scale and bias have the shape of the last `count` dims of `x`."""
    expected = ir.Shape(list(x.shape or ())[-count:])
    for what, value in vectors.items():
        if value is not None and (value.shape is None or value.shape != expected):
            raise Mismatch(f"its {what} has shape {value.shape}, expected {expected}")
