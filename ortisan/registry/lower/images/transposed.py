"""ConvTranspose as a convolution: what an output pixel gets depends on where it is between two input pixels.

Output pixel q * stride + r gets tap i = r + stride * m of the filters from input pixel q - m. So a convolution of
stride 1 with `stride` times as many filters along each axis makes all pixels q * stride + r at once, as channels; they
are moved to their places, and what is beyond the edges is cut off.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ortisan.registry.builder import Builder, is_constant
from ortisan.registry.dims import Dim, is_static, product, settle
from ortisan.registry.dtypes import Array
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.images.volumes import as_planes, as_volume, layers, stacked, volume, volume_first
from ortisan.registry.lower.images.windows import Steps, across, channels_first, check_kernel, image, numbers
from ortisan.registry.ops import Conv2d, DynamicSlice
from ortisan.registry.refusal import Refused

_ATTRIBUTES = ["auto_pad", "dilations", "group", "kernel_shape", "output_padding", "output_shape", "pads", "strides"]


@lowers("ConvTranspose", attributes=_ATTRIBUTES)
def conv_transpose(site: Site) -> Value:
    b, x, w, bias = site.builder, site.need(0), site.need(1), site.optional(2)
    rank, group = len(x.shape), int(site.attribute("group", 1))
    if rank not in (3, 4, 5):
        kinds = "lines, images and volumes, with 3, 4 and 5 dims"
        raise Refused(f"ConvTranspose is supported for {kinds}, not for {x.type}")
    if len(w.shape) != rank or not is_constant(w) or w.data is None:
        raise Refused(f"ConvTranspose needs constant filters with {rank} dims, not {w.type}")
    if group < 1 or w.shape[0] % group:
        raise Refused(f"ConvTranspose of {w.shape[0]} channels can't have {group} groups")
    check_kernel(site, w.shape[2:])
    places = x.shape[2:]
    strides, dilations = _steps(site, rank - 2)
    filters = _spread(w.data, dilations)
    begins, sizes = _cut(site, places, filters.shape[2:], strides)
    if rank == 3:
        filters, strides, begins, sizes = filters[:, :, None], [1, *strides], [0, *begins], [1, *sizes]
    taps = [-(-extent // stride) for extent, stride in zip(filters.shape[2:], strides, strict=True)]
    phases = b.constant(_phases(filters, strides, taps, group), w.name)
    last = volume(b, x) if rank == 5 else image(site)
    ends = [begin + size for begin, size in zip(begins, sizes, strict=True)]
    more = [_more(*each) for each in zip(last.shape[1:-1], taps, strides, ends, strict=True)]
    steps = [Steps(tap, 1, 1, tap - 1, tap - 1 + extra) for tap, extra in zip(taps, more, strict=True)]
    own = None if bias is None else _biases(b, bias, strides, group)
    operands = [phases] if own is None else [phases, own]
    whole = _placed(b, _convolved(b, last, operands, steps, group), strides, group)
    part = DynamicSlice((0, *begins, 0), (whole.shape[0], *sizes, whole.shape[-1]), (1,) * len(whole.shape))
    y = whole if whole.shape == part.sizes else b.add(part, whole)
    y = y if bias is None or own is not None else b.elementwise("ADD", y, bias)
    return volume_first(b, y) if rank == 5 else channels_first(b, y, rank)


def _biases(b: Builder, bias: Value, strides: Sequence[int], group: int) -> Value | None:
    """The constant bias of each phase."""
    if bias.data is None or bias.data.size % group:
        return None
    own = bias.data.reshape(group, 1, -1)
    return b.constant(np.repeat(own, product(strides), axis=1).reshape(-1), bias.name)


def _convolved(b: Builder, x: Value, operands: Sequence[Value], steps: Sequence[Steps], group: int) -> Value:
    """With the filters, and the bias where there is one."""
    filters, *bias = operands
    op = Conv2d(pads=across(*steps[-2:]).pads, group=group, bias=bool(bias))
    if len(steps) == 2:
        return b.add(op, x, filters, *bias)
    count, depth, rows, columns, inner = filters.shape
    planes = stacked(b, layers(b, x, steps[0]), group)
    flat = b.reshape(b.permute(filters, (0, 2, 3, 1, 4)), (count, rows, columns, depth * inner))
    return as_volume(b, b.add(op, as_planes(b, planes), flat, *bias), planes.shape[:2])


def _steps(site: Site, count: int) -> tuple[list[int], list[int]]:
    strides, dilations = (numbers(site, name, (1,) * count) for name in ("strides", "dilations"))
    if min((*strides, *dilations), default=1) < 1:
        raise Refused("ConvTranspose with a stride or a dilation below 1 is not defined")
    return strides, dilations


def _spread(filters: Array, dilations: Sequence[int]) -> Array:
    """Filters with zeros between their taps."""
    shape = [(extent - 1) * step + 1 for extent, step in zip(filters.shape[2:], dilations, strict=True)]
    spread = np.zeros((*filters.shape[:2], *shape), filters.dtype)
    places = tuple(slice(None, None, step) for step in (1, 1, *dilations))
    spread[places] = filters
    return spread


def _cut(
    site: Site, places: Sequence[Dim], kernel: Sequence[int], strides: Sequence[int]
) -> tuple[list[int], list[Dim]]:
    """Where the output begins in what all taps reach, and its size."""
    count = len(places)
    added = numbers(site, "output_padding", (0,) * count)
    kind = site.text("auto_pad", "NOTSET")
    wanted = site.attributes.get("output_shape")
    if wanted is None and kind in ("NOTSET", "VALID"):
        pads = numbers(site, "pads", (0,) * (2 * count)) if kind == "NOTSET" else [0] * (2 * count)
        if min(pads, default=0) < 0:
            raise Refused(f"pads of {pads} are not supported")
        reach = [settle((place - 1) * s + k + a) for place, s, k, a in zip(places, strides, kernel, added, strict=True)]
        return pads[:count], [settle(reach[a] - pads[a] - pads[a + count]) for a in range(count)]
    if not all(map(is_static, places)):
        raise Refused("ConvTranspose to a given size needs images of known size")
    sizes = (
        [int(n) for n in wanted][-count:]
        if wanted is not None
        else [p * s for p, s in zip(places, strides, strict=True)]
    )
    total = [max((places[a] - 1) * strides[a] + kernel[a] + added[a] - sizes[a], 0) for a in range(count)]
    return [t // 2 if kind == "SAME_UPPER" else t - t // 2 for t in total], list(sizes)


def _phases(filters: Array, strides: Sequence[int], taps: Sequence[int], group: int) -> Array:
    """[group, phases by axis, filters, taps by axis, channels] of w[C, O/group, kernel]."""
    channels, outer, *kernel = filters.shape
    inner, count = channels // group, len(kernel)
    split = filters.reshape(group, inner, outer, *kernel)
    found = np.zeros((group, *strides, outer, *taps, inner), filters.dtype)
    for phase in itertools.product(*map(range, strides)):
        every = tuple(slice(r, None, stride) for r, stride in zip(phase, strides, strict=True))
        part = np.moveaxis(split[(slice(None),) * 3 + every], 1, -1)
        # Tap m of a phase meets input pixel q - m: the convolution has it from the end.
        turned = np.flip(part, tuple(range(2, 2 + count)))
        ends = tuple(slice(tap - extent, None) for tap, extent in zip(taps, turned.shape[2:-1], strict=True))
        place: tuple[int | slice, ...] = (slice(None), *phase, slice(None), *ends)
        found[place] = turned
    return found.reshape(-1, *taps, inner)


def _more(size: Dim, taps: int, stride: int, end: Dim) -> int:
    """Pixels of padding that are missing where the output ends behind what all taps reach."""
    missing = settle(end - (size + taps - 1) * stride)
    if not is_static(missing):
        raise Refused(f"the size {end} of a ConvTranspose is not that of its input by the stride")
    pixels: int = -(-missing // stride)
    return max(0, pixels)


def _placed(b: Builder, made: Value, strides: Sequence[int], group: int) -> Value:
    """The channels of all phases, moved to where their pixels are."""
    n, *places, channels = made.shape
    if product(strides) == 1:
        return made
    count, outer = len(places), channels // (group * product(strides))
    apart = b.reshape(made, (n, *places, group, *strides, outer))
    in_turn = [axis for i in range(1, count + 1) for axis in (i, count + 1 + i)]
    together = b.permute(apart, (0, *in_turn, count + 1, 2 * count + 2))
    sizes = (settle(place * stride) for place, stride in zip(places, strides, strict=True))
    return b.reshape(together, (n, *sizes, group * outer))
