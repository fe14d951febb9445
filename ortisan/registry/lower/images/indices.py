"""MaxPool with the places of the largest elements, as ONNX counts them: through the whole input."""

from __future__ import annotations

from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, floor_div, product, settle
from ortisan.registry.dtypes import DType
from ortisan.registry.entries import Site
from ortisan.registry.graph import Value
from ortisan.registry.lower.images.volumes import as_planes, as_volume, volume, volume_first
from ortisan.registry.lower.images.windows import (
    ONE,
    Windows,
    across,
    channels_first,
    image,
    numbers,
    plane_of,
    windows_of,
)
from ortisan.registry.ops import Arange, Gather, Pool2d


def with_indices(site: Site) -> tuple[Value, Value]:
    b, x = site.builder, site.need(0)
    places = x.shape[2:]
    steps = windows_of(site, numbers(site, "kernel_shape", (1,) * len(places)), places)
    if len(places) == 3:
        whole = volume(b, x)
        planes = _pooled(site, as_planes(b, whole), across(*steps[1:]))
        y, within = (volume_first(b, value) for value in _along_depth(site, whole, planes, across(steps[0], ONE)))
    else:
        rank = len(x.shape)
        y, within = (channels_first(b, v, rank) for v in _pooled(site, image(site), plane_of(steps)))
    n, channels = x.shape[:2]
    if site.attribute("storage_order", 0):
        within = _last_place_first(b, within, places)
    before = b.add(Arange(0, product(places), settle(n * channels), DType.INT64))
    return y, b.elementwise("ADD", within, b.reshape(before, (n, channels, *(1,) * len(places))))


def _pooled(site: Site, x: Value, windows: Windows) -> tuple[Value, Value]:
    ceil = bool(site.attribute("ceil_mode", 0))
    op = Pool2d("max", windows.kernel, windows.strides, windows.pads, False, windows.dilations, ceil, indices=True)
    y, within = site.builder.add_many(op, x)
    return y, within


def _along_depth(site: Site, whole: Value, planes: tuple[Value, Value], depth: Windows) -> tuple[Value, Value]:
    """The largest of each layer's largest elements, and their places in the volume: the first layer comes first."""
    b, (n, layers, height, width, channels) = site.builder, whole.shape
    rows, columns = planes[0].shape[1:3]
    pixels = settle(rows * columns)
    largest, within = (b.reshape(as_volume(b, value, (n, layers)), (n, layers, pixels, channels)) for value in planes)
    y, found = _pooled(site, largest, depth)
    deep = y.shape[1]
    flat = b.reshape(found, (n, settle(deep * pixels), channels))
    in_layer = b.add(Gather(1), b.reshape(within, (n, settle(layers * pixels), channels)), flat)
    layer = b.elementwise("DIV", flat, _number(b, pixels))
    place = b.elementwise("ADD", b.elementwise("MUL", layer, _number(b, settle(height * width))), in_layer)
    shape = (n, deep, rows, columns, channels)
    return b.reshape(y, shape), b.reshape(place, shape)


def _last_place_first(b: Builder, within: Value, places: tuple[Dim, ...]) -> Value:
    """Places counted with the first axis as the fastest one."""
    total: Value | None = None
    rest, factor = within, product(places)
    for size in reversed(places):
        factor = floor_div(factor, size) if size != 0 else 0
        here = b.elementwise("MOD", rest, _number(b, size))
        rest = b.elementwise("DIV", rest, _number(b, size))
        part = b.elementwise("MUL", here, _number(b, factor))
        total = part if total is None else b.elementwise("ADD", total, part)
    return within if total is None else total


def _number(b: Builder, dim: Dim) -> Value:
    return b.add(Arange(dim, 1, 1, DType.INT64))
