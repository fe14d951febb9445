"""Resize and Upsample of lines and images: the places change, batch and channels don't."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ortisan.registry.builder import is_constant, known_dims
from ortisan.registry.dims import Dim, floor_div, is_static
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.images.windows import channels_first, image
from ortisan.registry.ops import Resize2d
from ortisan.registry.ops.images import COORDINATES, ROUNDINGS
from ortisan.registry.refusal import Refused

_ATTRIBUTES = ("antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside")
_MORE = ("extrapolation_value", "keep_aspect_ratio_policy", "mode", "nearest_mode")


@lowers("Resize", since=11, attributes=[*_ATTRIBUTES, *_MORE])
def resize(site: Site) -> Value:
    if site.attribute("antialias", 0):
        raise Refused("Resize with antialias is not supported")
    if _text(site, "keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Refused("Resize that keeps the aspect ratio is not supported")
    coordinates = _text(site, "coordinate_transformation_mode", "half_pixel")
    if coordinates not in COORDINATES:
        raise Refused(f"Resize with coordinate_transformation_mode={coordinates} is not supported")
    rounding = _text(site, "nearest_mode", "round_prefer_floor")
    if rounding not in ROUNDINGS:
        raise Refused(f"Resize with nearest_mode={rounding} is not defined")
    rank = len(site.need(0).shape)
    axes = [axis % rank for axis in site.attributes.get("axes") or range(rank)]
    scales, sizes = site.optional(2), site.optional(3)
    if sizes is not None and sizes.shape != (0,):
        return _resized(site, axes, known_dims(sizes, "the size of the image"), None, coordinates, rounding)
    if scales is None:
        raise Refused("Resize has neither scales nor sizes")
    return _scaled(site, axes, scales, coordinates, rounding)


@lowers("Upsample", since=9, until=9, attributes=["mode"])
@lowers("Resize", since=10, until=10, attributes=["mode"])
def upsample(site: Site) -> Value:
    return _scaled(site, range(len(site.need(0).shape)), site.need(1), "asymmetric", "floor")


def _text(site: Site, name: str, default: str) -> str:
    found = site.attributes.get(name, default)
    return found.decode() if isinstance(found, bytes) else str(found)


def _scaled(site: Site, axes: Sequence[int], scales: Value, coordinates: str, rounding: str) -> Value:
    if not is_constant(scales) or scales.data is None:
        raise Refused("the scales of the image are computed")
    factors = [float(scale) for scale in scales.data.reshape(-1)]
    sizes = [_size(site.need(0).shape[axis], factor) for axis, factor in zip(axes, factors, strict=False)]
    return _resized(site, axes, sizes, factors, coordinates, rounding)


def _size(dim: Dim, scale: float) -> Dim:
    if is_static(dim):
        return int(np.floor(np.float32(dim) * np.float32(scale)))
    exact = Fraction(scale)
    if exact.denominator > 64:
        raise Refused(f"a scale of {scale:g} of the dynamic dim {dim} is not supported")
    return floor_div(dim * exact.numerator, exact.denominator)


def _resized(
    site: Site,
    axes: Sequence[int],
    sizes: Sequence[Dim],
    factors: Sequence[float] | None,
    coordinates: str,
    rounding: str,
) -> Value:
    b, shape = site.builder, site.need(0).shape
    if len(sizes) != len(axes):
        raise Refused(f"Resize of {len(axes)} axes can't have {len(sizes)} sizes")
    target, scales = dict(enumerate(shape)), dict.fromkeys(range(len(shape)), 1.0 if factors else None)
    target.update(zip(axes, sizes, strict=True))
    scales.update(zip(axes, factors or [None] * len(axes), strict=True))
    if any(target[axis] != shape[axis] for axis in (0, 1)):
        raise Refused(f"Resize of batch or channels is not supported: {list(shape)} to {list(target.values())}")
    mode = _text(site, "mode", "nearest")
    if mode not in ("nearest", "linear"):
        raise Refused(f"Resize with mode={mode} is not supported")
    x = image(site)
    places = [target[axis] for axis in range(2, len(shape))]
    steps = [scales[axis] for axis in range(2, len(shape))]
    rows, columns = places if len(places) == 2 else [1, *places]
    down, across = steps if len(steps) == 2 else [1.0, *steps]
    op = Resize2d(mode, (rows, columns), (down, across), coordinates, rounding)
    return channels_first(b, b.add(op, x), len(shape))
