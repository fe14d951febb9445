"""Convolutions that are matrix products: of 1 x 1 filters, and of filters as large as the image.

conv(x[N,H,W,C], w[O,1,1,C])    becomes    gemm_rcr(x, w[O,C])
conv(x[N,H,W,C], w[O,H,W,C])    becomes    gemm_rcr(x[N,HWC], w[O,HWC])[N,1,1,O]
"""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.registry.builder import Builder
from ortisan.registry.dims import product
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import Conv2d, Gemm
from ortisan.registry.passes.rewrite import Rule, run_pass


def pointwise(graph: Graph) -> Graph:
    """Makes matrix products of the convolutions that are some. Returns a graph without convolutions unchanged."""
    has_filters = any(isinstance(node.op, Conv2d) for node in graph.nodes)
    return run_pass("pointwise", graph, _Pointwise()) if has_filters else graph


class _Pointwise(Rule):
    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        op = node.op
        if not isinstance(op, Conv2d) or op.group != 1 or op.pads != (0, 0, 0, 0):
            return None
        x, w, *bias = inputs
        if w.shape[1:3] == (1, 1) and op.strides == (1, 1):
            rows = x
        elif w.shape[1:3] == x.shape[1:3] and op.dilations == (1, 1):
            rows = b.reshape(x, (x.shape[0], product(x.shape[1:])))
        else:
            return None
        filters = b.reshape(w, (w.shape[0], product(w.shape[1:])))
        made = b.add(Gemm("rcr", bias=op.bias), rows, filters, *bias)
        return [b.reshape(made, node.output.shape)]
