"""Pools over lines, images and volumes, and LRN, which pools channels.

A window over a volume is one over each layer and one over what these give: largest elements and means can be taken in
two steps, because the places that a mean counts are a product.
"""

from __future__ import annotations

import math
from typing import Literal

from ortisan.registry.builder import Builder
from ortisan.registry.dims import product, settle
from ortisan.registry.entries import Result, Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.images.indices import with_indices
from ortisan.registry.lower.images.volumes import as_planes, as_volume, volume, volume_first
from ortisan.registry.lower.images.windows import (
    ONE,
    Windows,
    across,
    channels_first,
    image,
    numbers,
    padded,
    plane_of,
    windows_of,
)
from ortisan.registry.ops import Pool2d, Reduce
from ortisan.registry.refusal import Refused

_ATTRIBUTES = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
_Kind = Literal["max", "mean"]


@lowers("MaxPool", attributes=[*_ATTRIBUTES, "storage_order"])
def max_pool(site: Site) -> Result:
    if any(site.used[1:]):
        return with_indices(site)
    known = padded(site, numbers(site, "kernel_shape", (1,) * (len(site.need(0).shape) - 2)), -math.inf)
    return _pool(known, known.need(0), "max", counts=False)


@lowers("AveragePool", attributes=[*_ATTRIBUTES, "count_include_pad"])
def average_pool(site: Site) -> Value:
    return _pool(site, site.need(0), "mean", counts=bool(site.attribute("count_include_pad", 0)))


@lowers("LpPool", since=2, attributes=[*_ATTRIBUTES, "p"])
def lp_pool(site: Site) -> Value:
    """(sum |x|^p)^(1/p): the sum is the mean of a window by its size."""
    b, p = site.builder, int(site.attribute("p", 2))
    if p < 1 or site.attribute("ceil_mode", 0):
        raise Refused(f"LpPool with p={p} and ceil_mode={site.attribute('ceil_mode', 0)} is not supported")
    x = site.need(0)
    size = math.prod(numbers(site, "kernel_shape", (1,) * (len(x.shape) - 2)))
    means = _pool(site, _power(b, x, p), "mean", counts=True)
    return _root(b, b.elementwise("MUL", means, b.number(size, x.dtype)), p)


@lowers("GlobalLpPool", since=2, attributes=["p"])
def global_lp_pool(site: Site) -> Value:
    b, x, p = site.builder, site.need(0), int(site.attribute("p", 2))
    if len(x.shape) < 3 or p < 1:
        raise Refused(f"GlobalLpPool with p={p} of {x.type} is not supported")
    return _root(b, b.add(Reduce("sum", 2, len(x.shape) - 1, True), _power(b, x, p)), p)


@lowers("LRN", attributes=["alpha", "beta", "bias", "size"])
def lrn(site: Site) -> Value:
    """x / (bias + alpha / size * (the squares of `size` channels around))^beta: channels are pooled as rows are."""
    b, x, size = site.builder, site.need(0), int(site.attribute("size", 0))
    if len(x.shape) < 3 or size < 1:
        raise Refused(f"LRN over {size} channels of {x.type} is not supported")
    n, channels, *places = x.shape
    columns = b.reshape(_power(b, x, 2), (n, channels, 1, product(places)))
    before = (size - 1) // 2
    means = b.add(Pool2d("mean", (size, 1), (1, 1), (before, 0, size - 1 - before, 0), counts_padding=True), columns)
    alpha, beta, bias = (
        b.number(site.attribute(name, default), x.dtype)
        for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    base = b.elementwise("ADD", bias, b.elementwise("MUL", alpha, b.reshape(means, x.shape)))
    return b.elementwise("DIV", x, b.elementwise("POW", base, beta))


def _power(b: Builder, x: Value, p: int) -> Value:
    """|x|^p"""
    if p == 2:
        return b.elementwise("MUL", x, x)
    size = b.elementwise("ABS", x)
    return size if p == 1 else b.elementwise("POW", size, b.number(p, x.dtype))


def _root(b: Builder, y: Value, p: int) -> Value:
    """y^(1 / p)"""
    if p == 1:
        return y
    return b.elementwise("SQRT", y) if p == 2 else b.elementwise("POW", y, b.number(1 / p, y.dtype))


def _pool(site: Site, x: Value, kind: _Kind, *, counts: bool) -> Value:
    b, places = site.builder, x.shape[2:]
    steps = windows_of(site, numbers(site, "kernel_shape", (1,) * len(places)), places)
    ceil = bool(site.attribute("ceil_mode", 0))

    def pooled(x: Value, windows: Windows) -> Value:
        op = Pool2d(kind, windows.kernel, windows.strides, windows.pads, counts, windows.dilations, ceil)
        return b.add(op, x)

    if len(places) != 3:
        return channels_first(b, pooled(image(site, x), plane_of(steps)), len(places) + 2)
    depth, rows, columns = steps
    whole = volume(b, x)
    planes = as_volume(b, pooled(as_planes(b, whole), across(rows, columns)), whole.shape[:2])
    n, layers, height, width, channels = planes.shape
    across_layers = pooled(b.reshape(planes, (n, layers, settle(height * width), channels)), across(depth, ONE))
    return volume_first(b, b.reshape(across_layers, (n, across_layers.shape[1], height, width, channels)))
