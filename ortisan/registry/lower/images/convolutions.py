"""Conv over lines, images and volumes: the channels go last, and back where ONNX has them."""

from __future__ import annotations

from ortisan.registry.dims import is_static
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.images.volumes import as_planes, as_volume, layers, stacked, volume, volume_first
from ortisan.registry.lower.images.windows import (
    CHANNELS_LAST,
    Windows,
    across,
    channels_first,
    check_kernel,
    image,
    padded,
    plane_of,
    windows_of,
)
from ortisan.registry.ops import Conv2d
from ortisan.registry.refusal import Refused


@lowers("Conv", attributes=["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"])
def conv(site: Site) -> Value:
    return convolution(site)


def convolution(site: Site) -> Value:
    rank, w = len(site.need(0).shape), site.need(1)
    if len(w.shape) != rank or not all(map(is_static, w.shape)):
        raise Refused(f"Conv needs filters of known size with {rank} dims, not {w.type}")
    check_kernel(site, w.shape[2:])
    site = padded(site, w.shape[2:]) if rank in (3, 4, 5) else site
    b, x = site.builder, site.need(0)
    if rank == 5:
        return _over_volumes(site)
    windows = plane_of(windows_of(site, w.shape[2:], x.shape[2:]))
    filters = b.permute(b.reshape(w, (*w.shape[:2], *windows.kernel)), CHANNELS_LAST)
    return channels_first(b, _convolved(site, image(site), filters, windows), rank)


def _convolved(site: Site, x: Value, filters: Value, windows: Windows) -> Value:
    bias, group = site.optional(2), int(site.attribute("group", 1))
    op = Conv2d(windows.strides, windows.pads, windows.dilations, group, bias is not None)
    return site.builder.add(op, x, filters, *([bias] if bias is not None else []))


def _over_volumes(site: Site) -> Value:
    """A convolution of images, whose channels are those of all layers that a filter reads, one after the other."""
    b, w, group = site.builder, site.need(1), int(site.attribute("group", 1))
    x = volume(b, site.need(0))
    depth, rows, columns = windows_of(site, w.shape[2:], x.shape[1:4])
    filters, inner, *kernel = w.shape
    last = b.permute(w, (0, 3, 4, 2, 1))
    planes = stacked(b, layers(b, x, depth), group)
    flat = b.reshape(last, (filters, *kernel[1:], kernel[0] * inner))
    made = _convolved(site, as_planes(b, planes), flat, across(rows, columns))
    return volume_first(b, as_volume(b, made, planes.shape[:2]))
