"""Convolutions and pools: a few channels are filled up with zeros."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.calls import CallWriter
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds, range_of
from ortisan.codegen.ait.rules import Reason, floats, static
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import Conv2d, Pad, Pool2d
from ortisan.registry.refusal import Refused

_ENOUGH = {DType.FLOAT32: 4, DType.FLOAT16: 8, DType.BFLOAT16: 8}
_MAX_POOL_CHANNELS = 512


def _conv2d_rule(node: Node, bounds: Bounds) -> Reason:
    op, x, w = node.op, *node.inputs[:2]
    assert isinstance(op, Conv2d)
    if op.pads[:2] != op.pads[2:]:
        return f"AITemplate's conv2d pads both sides alike, not {op.pads}"
    if op.group != 1 and not op.group == x.shape[3] == w.shape[0]:
        return (
            f"AITemplate computes a convolution of {op.group} groups wrongly; it has one group, or one for each channel"
        )
    if op.group != 1 and x.dtype is not DType.FLOAT16:
        return f"AITemplate's depthwise convolution gives float16, not {x.dtype.value}"
    if any(range_of(extent, bounds)[0] == 0 for extent in node.output.shape[1:3]):
        return "AITemplate needs images that are never smaller than the filters; bound their dims from below"
    if reason := floats(node) or static((x.shape[3], *w.shape), "the channels and the filters of a convolution"):
        return reason
    return f"AITemplate has no convolution of {x.shape[3]} channels" if x.shape[3] % 2 else None


def _compose_conv2d(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
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


def _call_conv2d(w: CallWriter, node: Node) -> None:
    op = node.op
    assert isinstance(op, Conv2d)
    kind = f"conv2d{'_depthwise' if op.group > 1 else ''}{'_bias' if op.bias else ''}"
    make = {"stride": _one(op.strides), "pad": _one(op.pads[:2]), "dilate": _one(op.dilations), "group": op.group}
    w.add(node, kind, [w.read(value) for value in node.inputs], make)


def _one(pair: tuple[int, int]) -> int | list[int]:
    return pair[0] if pair[0] == pair[1] else list(pair)


def _pool2d_rule(node: Node, bounds: Bounds) -> Reason:
    op, (x,) = node.op, node.inputs
    assert isinstance(op, Pool2d)
    if len({*op.kernel}) > 1 or len({*op.strides}) > 1 or len({*op.pads}) > 1:
        return "AITemplate's pools have square windows, with one stride and one padding"
    if op.dilations != (1, 1) or op.ceil or op.indices:
        return "AITemplate's pools have no dilations, no indices, and no windows that end outside of the padded image"
    if op.kind == "mean" and op.pads[0] and not op.counts_padding:
        return "AITemplate's avg_pool2d counts the padding"
    if x.dtype not in (DType.FLOAT16, DType.FLOAT32):
        return f"AITemplate's pools take float16 and float32, not {x.dtype.value}"
    if reason := static(x.shape[1:], "the size of a pooled image"):
        return reason
    if x.shape[3] % 2 or (op.kind == "max" and x.shape[3] > _MAX_POOL_CHANNELS):
        return f"AITemplate's pools take an even number of channels up to {_MAX_POOL_CHANNELS}, not {x.shape[3]}"
    return None


def _call_pool2d(w: CallWriter, node: Node) -> None:
    op = node.op
    assert isinstance(op, Pool2d)
    make = {"kernel_size": op.kernel[0], "stride": op.strides[0], "pad": op.pads[0]}
    w.add(node, "max_pool2d" if op.kind == "max" else "avg_pool2d", [w.read(node.inputs[0])], make)


OPS = (
    AitOp(Conv2d, rule=_conv2d_rule, compose=_compose_conv2d, call=_call_conv2d),
    AitOp(Pool2d, rule=_pool2d_rule, call=_call_pool2d),
)
