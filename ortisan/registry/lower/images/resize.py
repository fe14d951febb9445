"""Resize and Upsample of lines and images: the places change, batch and channels don't."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np

from ortisan.registry.builder import is_constant, known_dims
from ortisan.registry.dims import Dim, floor_div, is_static
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.images.windows import channels_first, image
from ortisan.registry.ops import Resize2d
from ortisan.registry.ops.images import COORDINATES, ROUNDINGS
from ortisan.registry.refusal import Refused

Wanted: TypeAlias = tuple[Dim, float | None]
"""A size, and what the places are divided by; None for the quotient of the sizes."""

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
    axes = site.attributes.get("axes") or range(len(site.need(0).shape))
    sizes = site.optional(3)
    if sizes is not None and sizes.shape != (0,):
        wanted: list[Wanted] = [(size, None) for size in known_dims(sizes, "the size of the image")]
    elif (scales := site.optional(2)) is not None:
        wanted = _scaled(site, axes, scales)
    else:
        raise Refused("Resize has neither scales nor sizes")
    return _resized(site, axes, wanted, coordinates, rounding)


@lowers("Upsample", since=9, until=9, attributes=["mode"])
@lowers("Resize", since=10, until=10, attributes=["mode"])
def upsample(site: Site) -> Value:
    axes = range(len(site.need(0).shape))
    return _resized(site, axes, _scaled(site, axes, site.need(1)), "asymmetric", "floor")


def _text(site: Site, name: str, default: str) -> str:
    found = site.attributes.get(name, default)
    return found.decode() if isinstance(found, bytes) else str(found)


def _scaled(site: Site, axes: Sequence[int], scales: Value) -> list[Wanted]:
    if not is_constant(scales) or scales.data is None:
        raise Refused("the scales of the image are computed")
    factors, shape = [float(scale) for scale in scales.data.reshape(-1)], site.need(0).shape
    if len(factors) != len(axes):
        raise Refused(f"{site.op_type} of {len(axes)} axes can't have {len(factors)} scales")
    return [(_size(shape[axis], factor), factor) for axis, factor in zip(axes, factors, strict=True)]


def _size(dim: Dim, scale: float) -> Dim:
    if is_static(dim):
        return int(np.floor(np.float32(dim) * np.float32(scale)))
    exact = Fraction(scale)
    if exact.denominator > 64:
        raise Refused(f"a scale of {scale:g} of the dynamic dim {dim} is not supported")
    return floor_div(dim * exact.numerator, exact.denominator)


def _resized(site: Site, axes: Sequence[int], wanted: Sequence[Wanted], coordinates: str, rounding: str) -> Value:
    b, shape = site.builder, site.need(0).shape
    if len(wanted) != len(axes):
        raise Refused(f"Resize of {len(axes)} axes can't have {len(wanted)} sizes")
    found: dict[int, Wanted] = {axis: (dim, 1.0) for axis, dim in enumerate(shape)}
    found.update((axis % len(shape), want) for axis, want in zip(axes, wanted, strict=True))
    sizes = [size for size, _ in found.values()]
    if any(size != dim for size, dim in zip(sizes[:2], shape, strict=False)):
        raise Refused(f"Resize of batch or channels is not supported: {list(shape)} to {sizes}")
    mode = _text(site, "mode", "nearest")
    if mode not in ("nearest", "linear"):
        raise Refused(f"Resize with mode={mode} is not supported")
    x = image(site)
    (rows, down), (columns, across) = ((1, 1.0), found[2]) if len(shape) == 3 else (found[2], found[3])
    kind: Literal["nearest", "linear"] = "nearest" if mode == "nearest" else "linear"
    op = Resize2d(kind, (rows, columns), (down, across), coordinates, rounding)
    return channels_first(b, b.add(op, x), len(shape))
