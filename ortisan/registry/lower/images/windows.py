"""What windows over lines, images and volumes are, and how these look with their channels last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, ceil_div, floor_div, is_static, settle
from ortisan.registry.entries import Site
from ortisan.registry.graph import Value
from ortisan.registry.ops import Pad
from ortisan.registry.ops.images import Pads, Pair
from ortisan.registry.refusal import Refused

CHANNELS_LAST, CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def image(site: Site, given: Value | None = None) -> Value:
    """The first input, or `given`, with two dims for places and the channels last: a line is an image of one row."""
    b, x = site.builder, site.need(0) if given is None else given
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
class Windows:
    """Windows along two axes; `pads` as ops over images have them."""

    kernel: Pair
    strides: Pair
    dilations: Pair
    pads: Pads


@dataclass(frozen=True)
class Steps:
    """Windows along one axis."""

    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def span(self) -> int:
        """Places from a window's first to its last."""
        return self.dilation * (self.kernel - 1) + 1


ONE = Steps(1, 1, 1, 0, 0)


def across(rows: Steps, columns: Steps) -> Windows:
    return Windows(
        (rows.kernel, columns.kernel),
        (rows.stride, columns.stride),
        (rows.dilation, columns.dilation),
        (rows.before, columns.before, rows.after, columns.after),
    )


def windows_of(site: Site, kernel: Sequence[int], places: Sequence[Dim]) -> list[Steps]:
    """The attributes of windows over these places, axis by axis."""
    count = len(kernel)
    if count not in (1, 2, 3):
        kinds = "lines, images and volumes, with 3, 4 and 5 dims"
        raise Refused(f"{site.op_type} is supported for {kinds}, not for {site.need(0).type}")
    strides, dilations = (numbers(site, name, (1,) * count) for name in ("strides", "dilations"))
    pads = _pads(site, kernel, places, strides, dilations)
    if min((*kernel, *strides, *dilations), default=1) < 1:
        raise Refused(f"{site.op_type} with a kernel, a stride or a dilation below 1 is not defined")
    return [Steps(*each) for each in zip(kernel, strides, dilations, pads[:count], pads[count:], strict=True)]


def plane_of(steps: Sequence[Steps]) -> Windows:
    """Those of an image, or of a line as an image of one row."""
    rows, columns = steps if len(steps) == 2 else (ONE, *steps)
    return across(rows, columns)


def check_kernel(site: Site, have: Sequence[Dim]) -> None:
    """`kernel_shape` says again what the filters say."""
    given = site.attributes.get("kernel_shape")
    if given is not None and list(given) != list(have):
        raise Refused(f"{site.op_type} has a kernel_shape of {list(given)}, and filters of {list(have)}")


def numbers(site: Site, name: str, default: Sequence[int]) -> list[int]:
    given = [int(number) for number in site.attributes.get(name) or default]
    if len(given) != len(default):
        raise Refused(f"{site.op_type} of {len(default)} dims for places can't have the {name} {given}")
    return given


def _pads(
    site: Site, kernel: Sequence[int], places: Sequence[Dim], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    kind = site.text("auto_pad", "NOTSET")
    given = numbers(site, "pads", (0,) * (2 * len(kernel))) if kind == "NOTSET" else [0] * (2 * len(kernel))
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        for axis, place in enumerate(places):
            total = _same(site, place, dilations[axis] * (kernel[axis] - 1) + 1, strides[axis])
            less, more = total // 2, total - total // 2
            given[axis], given[axis + len(places)] = (less, more) if kind == "SAME_UPPER" else (more, less)
    elif kind not in ("NOTSET", "VALID"):
        raise Refused(f"auto_pad={kind} is not defined")
    if kind != "NOTSET" and any(site.attributes.get("pads") or ()):
        raise Refused(f"{site.op_type} can't have both pads and auto_pad={kind}")
    if min(given, default=0) < 0:
        raise Refused(f"pads of {given} are not supported")
    return given


def padded(site: Site, kernel: Sequence[int], filling: float = 0.0) -> Site:
    """The same op over what is padded already, where that depends on dims that are known at run time only."""
    b, x, kind = site.builder, site.need(0), site.text("auto_pad", "NOTSET")
    count, places = len(kernel), x.shape[2:]
    strides, dilations = (numbers(site, name, (1,) * count) for name in ("strides", "dilations"))
    spans = [dilation * (size - 1) + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    axes = list(zip(places, spans, strides, strict=True))
    unknown = any(not is_static(place) and 1 < stride <= span for place, span, stride in axes)
    if kind not in ("SAME_UPPER", "SAME_LOWER") or not unknown or any(site.attributes.get("pads") or ()):
        return site
    totals = [
        settle((ceil_div(place, stride) - 1) * stride + span - place) if stride <= span else 0
        for place, span, stride in axes
    ]
    less, more = [floor_div(total, 2) for total in totals], [ceil_div(total, 2) for total in totals]
    before, after = (less, more) if kind == "SAME_UPPER" else (more, less)
    scalar = () if filling == 0.0 else (b.number(filling, x.dtype),)
    whole = b.add(Pad((0, 0, *before), (0, 0, *after)), x, *scalar)
    return replace(site, inputs=(whole, *site.inputs[1:]), attributes={**site.attributes, "auto_pad": "VALID"})


def _same(site: Site, place: Dim, span: int, stride: int) -> int:
    """The padding with which as many windows as strides fit."""
    if stride == 1:
        return span - 1
    if not is_static(place) and span < stride:
        return 0
    if not is_static(place):
        raise Refused(f"auto_pad of {site.op_type} with strides depends on the dynamic dim {place}; write the pads out")
    missing: int = (-(-place // stride) - 1) * stride + span - place
    return max(missing, 0)
