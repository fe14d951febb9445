"""MatMul and Gemm. A constant right side becomes `gemm_rcr` (weights as [N, K]), two computed sides a `bmm_*`."""

from __future__ import annotations

import numpy as np

from ortisan.registry.builder import Builder, is_constant
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import Bmm, Gemm, Permute


def _transposed_weight(b: Builder, w: Value) -> Value:
    return b.permute(w, (1, 0))


def _swaps_last_two(value: Value, b: Builder) -> Value | None:
    """x when value is x with its last two axes swapped."""
    node = b.producer(value)
    if node is None or not isinstance(node.op, Permute):
        return None
    rank = len(node.op.order)
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    return node.inputs[0] if node.op.order == swapped else None


def product(b: Builder, x: Value, w: Value) -> Value:
    """x @ w for operands of two or more dims."""
    if len(w.shape) == 2 and is_constant(w):
        return b.add(Gemm("rcr"), x, _transposed_weight(b, w))
    source = _swaps_last_two(w, b)
    if len(w.shape) == 2:
        return b.add(Gemm("rrr"), x, w) if source is None else b.add(Gemm("rcr"), x, source)
    return b.add(Bmm("rrr"), x, w) if source is None else b.add(Bmm("rcr"), x, source)


@lowers("MatMul", since=1)
def matmul(site: Site) -> Value:
    b, x, w = site.builder, site.need(0), site.need(1)
    vector_left, vector_right = len(x.shape) == 1, len(w.shape) == 1
    if vector_left:
        x = b.reshape(x, (1, *x.shape))
    if vector_right:
        w = b.reshape(w, (*w.shape, 1))
    y = product(b, x, w)
    shape = list(y.shape)
    if vector_right:
        del shape[-1]
    if vector_left:
        del shape[-1 if vector_right else -2]
    return b.reshape(y, shape)


@lowers("Gemm", since=7, attributes=["alpha", "beta", "transA", "transB"])
def gemm(site: Site) -> Value:
    b, x, w, c = site.builder, site.need(0), site.need(1), site.optional(2)
    alpha, beta = site.attribute("alpha", 1.0), site.attribute("beta", 1.0)
    if site.attribute("transA", 0):
        x = b.permute(x, (1, 0))
    if alpha != 1.0 and is_constant(w) and w.data is not None:
        w = b.constant((w.data * np.asarray(alpha, w.data.dtype)).astype(w.data.dtype), w.name)
        alpha = 1.0
    if c is not None and beta != 1.0:
        c = b.elementwise("MUL", c, b.number(beta, c.dtype))
    y = _gemm_product(b, x, w, bool(site.attribute("transB", 0)), c if alpha == 1.0 else None)
    if alpha != 1.0:
        y = b.elementwise("MUL", y, b.number(alpha, y.dtype))
    elif c is not None and _is_row(c, y):
        return y
    return y if c is None else b.elementwise("ADD", y, c)


def _gemm_product(b: Builder, x: Value, w: Value, transposed: bool, c: Value | None) -> Value:
    if not transposed and is_constant(w):
        w, transposed = _transposed_weight(b, w), True
    layout = Gemm("rcr") if transposed else Gemm("rrr")
    n = w.shape[0 if transposed else 1]
    if c is not None and c.shape in ((n,), (1, n)):
        return b.add(Gemm(layout.layout, bias=True), x, w, b.reshape(c, (n,)))
    return b.add(layout, x, w)


def _is_row(c: Value, y: Value) -> bool:
    """Whether `_gemm_product` took c as its bias."""
    return c.shape in ((y.shape[1],), (1, y.shape[1]))
