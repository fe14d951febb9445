"""Conv, MaxPool and AveragePool over lines and images: the channels go last, and back where ONNX has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, is_static
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import Conv2d, Pool2d
from ortisan.registry.ops.images import Pads, Pair
from ortisan.registry.refusal import Refused

CHANNELS_LAST, CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_POOL = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")


def image(site: Site) -> Value:
    """The image with two dims for places and the channels last: a line is an image of one row."""
    b, x = site.builder, site.need(0)
    if len(x.shape) == 3:
        n, c, length = x.shape
        return b.reshape(b.permute(x, (0, 2, 1)), (n, 1, length, c))
    if len(x.shape) != 4:
        raise Refused(f"{site.op_type} is supported for lines and images, with 3 and 4 dims, not for {x.type}")
    return b.permute(x, CHANNELS_LAST)


def channels_first(b: Builder, y: Value, rank: int) -> Value:
    if rank == 3:
        n, _, length, c = y.shape
        return b.permute(b.reshape(y, (n, length, c)), (0, 2, 1))
    return b.permute(y, CHANNELS_FIRST)


@dataclass(frozen=True)
class _Windows:
    kernel: Pair
    strides: Pair
    dilations: Pair
    pads: Pads


def _windows(site: Site, kernel: Sequence[int], places: Sequence[Dim]) -> _Windows:
    """The attributes of windows over these places, one row for a line."""
    count = len(kernel)
    strides, dilations = (numbers(site, name, (1,) * count) for name in ("strides", "dilations"))
    pads = _pads(site, kernel, places, strides, dilations)
    if min((*kernel, *strides, *dilations), default=1) < 1:
        raise Refused(f"{site.op_type} with a kernel, a stride or a dilation below 1 is not defined")
    if count == 1:
        return _Windows((1, kernel[0]), (1, strides[0]), (1, dilations[0]), (0, pads[0], 0, pads[1]))
    return _Windows(_pair(kernel), _pair(strides), _pair(dilations), (pads[0], pads[1], pads[2], pads[3]))


def _pair(numbers: Sequence[int]) -> Pair:
    first, second = numbers
    return first, second


def numbers(site: Site, name: str, default: Sequence[int]) -> list[int]:
    given = [int(number) for number in site.attributes.get(name) or default]
    if len(given) != len(default):
        raise Refused(f"{site.op_type} of {len(default)} dims for places can't have the {name} {given}")
    return given


def _pads(
    site: Site, kernel: Sequence[int], places: Sequence[Dim], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    kind = site.attributes.get("auto_pad", "NOTSET")
    kind = kind.decode() if isinstance(kind, bytes) else kind
    given = numbers(site, "pads", (0,) * (2 * len(kernel))) if kind == "NOTSET" else [0] * (2 * len(kernel))
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        for axis, place in enumerate(places):
            total = _same(site, place, dilations[axis] * (kernel[axis] - 1) + 1, strides[axis])
            less, more = total // 2, total - total // 2
            given[axis], given[axis + len(places)] = (less, more) if kind == "SAME_UPPER" else (more, less)
    elif kind not in ("NOTSET", "VALID"):
        raise Refused(f"auto_pad={kind} is not defined")
    if min(given, default=0) < 0:
        raise Refused(f"pads of {given} are not supported")
    return given


def _same(site: Site, place: Dim, span: int, stride: int) -> int:
    """The padding with which as many windows as strides fit."""
    if stride == 1:
        return span - 1
    if not is_static(place):
        raise Refused(f"auto_pad of {site.op_type} with strides depends on the dynamic dim {place}; write the pads out")
    missing: int = (-(-place // stride) - 1) * stride + span - place
    return max(missing, 0)


@lowers("Conv", attributes=["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"])
def conv(site: Site) -> Value:
    b, x, w, bias = site.builder, image(site), site.need(1), site.optional(2)
    rank = len(site.need(0).shape)
    if len(w.shape) != rank or not all(map(is_static, w.shape)):
        raise Refused(f"Conv needs filters of known size with {rank} dims, not {w.type}")
    windows = _windows(site, w.shape[2:], site.need(0).shape[2:])
    filters = b.permute(b.reshape(w, (*w.shape[:2], *windows.kernel)), CHANNELS_LAST)
    group = int(site.attribute("group", 1))
    op = Conv2d(windows.strides, windows.pads, windows.dilations, group, bias is not None)
    return channels_first(b, b.add(op, x, filters, *([bias] if bias is not None else [])), rank)


@lowers("MaxPool", attributes=[*_POOL, "storage_order"])
def max_pool(site: Site) -> Value:
    site.refuse_outputs(1)
    return _pool(site, "max", counts=False)


@lowers("AveragePool", attributes=[*_POOL, "count_include_pad"])
def average_pool(site: Site) -> Value:
    return _pool(site, "mean", counts=bool(site.attribute("count_include_pad", 0)))


def _pool(site: Site, kind: Literal["max", "mean"], *, counts: bool) -> Value:
    b, x, places = site.builder, image(site), site.need(0).shape[2:]
    kernel = numbers(site, "kernel_shape", (1,) * len(places))
    windows = _windows(site, kernel, places)
    ceil = bool(site.attribute("ceil_mode", 0))
    op = Pool2d(kind, windows.kernel, windows.strides, windows.pads, counts, windows.dilations, ceil)
    return channels_first(b, b.add(op, x), len(places) + 2)
