"""Convolutions and pools: what follows is folded into the filters, and a few channels are filled up with zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ortisan.codegen.ait.dialect import Composer
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import Conv2d, Pad
from ortisan.registry.refusal import Refused

_ENOUGH = {DType.FLOAT32: 4, DType.FLOAT16: 8, DType.BFLOAT16: 8}


def conv2d(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """AITemplate finds no kernel for an odd number of channels."""
    assert isinstance(op, Conv2d)
    x, w = inputs[:2]
    channels = x.shape[3]
    if op.group == 1 and isinstance(channels, int) and channels % 2:
        full = -(-channels // _ENOUGH.get(x.dtype, 4)) * _ENOUGH.get(x.dtype, 4)
        if w.data is None:
            raise Refused(f"AITemplate has no convolution of {channels} channels with filters known at run time")
        zeros = (0, 0, 0, 0)
        x = b.add(Pad(zeros, (0, 0, 0, full - channels)), x)
        w = b.constant(np.pad(w.data, ((0, 0), (0, 0), (0, 0), (0, full - channels))), w.name)
    return [b.add(op, x, w, *inputs[2:])]


def folded(b: Composer, func: str, x: Value, y: Value) -> Value | None:
    """A convolution whose result is multiplied with, or to which is added, a number per channel, as one."""
    for image, constant in ((x, y), (y, x)):
        node = b.producer(image)
        if node is not None and isinstance(node.op, Conv2d) and _per_channel(constant, image):
            return _fold(b, func, node, constant)
    return None


def _per_channel(constant: Value, image: Value) -> bool:
    return constant.data is not None and constant.data.size == image.shape[3] and constant.shape[-1] == image.shape[3]


def _fold(b: Composer, func: str, node: Node, constant: Value) -> Value | None:
    op, (x, w, *rest) = node.op, node.inputs
    assert isinstance(op, Conv2d)
    assert constant.data is not None
    if w.data is None or any(value.data is None for value in rest):
        return None
    numbers = constant.data.reshape(-1).astype(np.float64)
    filters = w.data.astype(np.float64)
    bias = rest[0].data.astype(np.float64) if rest and rest[0].data is not None else np.zeros(len(numbers))
    if func == "MUL":
        filters, bias = filters * numbers[:, None, None, None], bias * numbers
    else:
        bias = bias + numbers
    dtype = x.dtype.numpy
    return b.add(
        replace(op, bias=True), x, b.constant(filters.astype(dtype), w.name), b.constant(bias.astype(dtype), "bias")
    )
