"""The sizes that all kernels over windows of an image take."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.registry.dims import Dim
from ortisan.registry.graph import Node
from ortisan.registry.ops import Conv2d, Pool2d


def window_sizes(node: Node, kernel: Sequence[Dim], groups: Dim) -> tuple[Dim, ...]:
    """The fields of ConvShape."""
    op = node.op
    if not isinstance(op, (Conv2d, Pool2d)):
        raise TypeError(f"{op.name} has no windows")
    taps = (*kernel, *op.strides, *op.pads[:2], *op.dilations, groups)
    return (*node.inputs[0].shape, *node.output.shape[1:], *taps)
