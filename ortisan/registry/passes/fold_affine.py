"""Folds a per-channel factor or term that follows a convolution into its filters and bias, or those of a normalisation.

conv(x, w) * f    becomes    conv(x, w f)        conv(x, w, b) + t    becomes    conv(x, w, b + t)
group_norm(x, g, b) * f + t    becomes    group_norm(x, g f, b f + t)

A batch normalisation is one of each. The filters' channels are last, so this runs after `channels_last`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ortisan.registry.builder import Builder, is_constant
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import Conv2d, Elementwise, GroupNorm
from ortisan.registry.passes.rewrite import Rule, run_pass


def fold_affine(graph: Graph) -> Graph:
    """Folds per-channel products and sums into convolutions and group norms. Returns a graph without them unchanged."""
    has_filters = any(isinstance(node.op, (Conv2d, GroupNorm)) for node in graph.nodes)
    return run_pass("fold_affine", graph, _FoldAffine(graph)) if has_filters else graph


class _FoldAffine(Rule):
    def __init__(self, graph: Graph) -> None:
        uses = Counter([*(value for node in graph.nodes for value in node.inputs), *graph.outputs])
        self._shared = {value for value, count in uses.items() if count > 1}

    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if not isinstance(node.op, Elementwise) or node.op.func not in ("ADD", "MUL"):
            return None
        for index, (image, constant) in enumerate((inputs, inputs[::-1])):
            made = b.producer(image)
            if node.inputs[index] in self._shared:
                continue  # the convolution stays for those who read it as it is
            if made is None or not _is_per_channel(constant, image):
                continue
            if isinstance(made.op, Conv2d):
                return _folded(b, node.op.func, made, made.op, constant)
            if isinstance(made.op, GroupNorm):
                return _normalized(b, node.op.func, made, constant)
        return None


def _is_per_channel(constant: Value, image: Value) -> bool:
    channels = image.shape[-1] if image.shape else None
    return (
        is_constant(constant)
        and constant.data is not None
        and bool(constant.data.size == channels)
        and constant.shape[-1:] == (channels,)
    )


def _normalized(b: Builder, func: str, made: Node, constant: Value) -> Sequence[Value] | None:
    x, gamma, beta = made.inputs
    if constant.data is None or gamma.data is None or beta.data is None:
        return None
    numbers, factor, term = (array.reshape(-1).astype(np.float64) for array in (constant.data, gamma.data, beta.data))
    factor, term = (factor * numbers, term * numbers) if func == "MUL" else (factor, term + numbers)
    b.origin = made.origin
    affine = (b.constant(array.astype(x.dtype.numpy), name) for array, name in ((factor, "gamma"), (term, "beta")))
    return [b.add(made.op, x, *affine)]


def _folded(b: Builder, func: str, made: Node, op: Conv2d, constant: Value) -> Sequence[Value] | None:
    x, w, *rest = made.inputs
    if constant.data is None or w.data is None or any(value.data is None for value in rest):
        return None
    numbers = constant.data.reshape(-1).astype(np.float64)
    filters = w.data.astype(np.float64)
    bias = rest[0].data.astype(np.float64) if rest and rest[0].data is not None else np.zeros(len(numbers))
    if func == "MUL":
        filters, bias = filters * numbers[:, None, None, None], bias * numbers
    else:
        bias = bias + numbers
    dtype = x.dtype.numpy
    # If a target rejects the result, the convolution is to blame, not what was folded into it.
    b.origin = made.origin
    operands = b.constant(filters.astype(dtype), w.name), b.constant(bias.astype(dtype), "bias")
    return [b.add(replace(op, bias=True), x, *operands)]
