"""Resize and Upsample of lines, images and volumes: the places change, batch and channels don't.

A volume is resized layer by layer, then along its depth as an image whose columns are all places of a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ortisan.registry.builder import Builder, is_constant, known_dims
from ortisan.registry.dims import Dim, floor_div, is_static, product
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.interpolation import COORDINATES, CROP, ROUNDINGS
from ortisan.registry.lower.images.volumes import as_planes, as_volume
from ortisan.registry.ops import Resize2d
from ortisan.registry.refusal import Refused


@dataclass(frozen=True)
class Wanted:
    """What becomes of an axis: its size, what its places are divided by (None: the quotient of the sizes), its part."""

    size: Dim
    scale: float | None = 1.0
    start: float = 0.0
    end: float = 1.0


_ATTRIBUTES = ("antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside")
_MORE = ("extrapolation_value", "keep_aspect_ratio_policy", "mode", "nearest_mode")
_LAST, _FIRST = (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)


@lowers("Resize", since=11, attributes=[*_ATTRIBUTES, *_MORE])
def resize(site: Site) -> Value:
    if site.attribute("antialias", 0):
        raise Refused("Resize with antialias is not supported: each pixel depends on as many as the factor says")
    rank = len(site.need(0).shape)
    axes = [int(axis) % rank for axis in site.attributes.get("axes") or range(rank)]
    return _resized(site, axes, _wanted(site, axes), _how(site))


@lowers("Upsample", since=7, until=7, attributes=["mode", "scales"])
@lowers("Upsample", since=9, until=9, attributes=["mode"])
@lowers("Resize", since=10, until=10, attributes=["mode"])
def upsample(site: Site) -> Value:
    axes = range(len(site.need(0).shape))
    factors = [float(factor) for factor in site.attributes.get("scales", ())] if site.version == 7 else None
    wanted = _scaled(site, axes, _numbers(site.need(1), "scales") if factors is None else factors)
    return _resized(site, axes, wanted, _op(site, "asymmetric", "floor"))


def _op(site: Site, coordinates: str, rounding: str) -> Resize2d:
    """How it is resized; the sizes are filled in later."""
    mode = site.text("mode", "nearest")
    if mode not in ("nearest", "linear", "cubic"):
        raise Refused(f"{site.op_type} with mode={mode} is not defined")
    return Resize2d(mode, (0, 0), (None, None), coordinates, rounding)  # type: ignore[arg-type]


def _how(site: Site) -> Resize2d:
    coordinates = site.text("coordinate_transformation_mode", "half_pixel")
    if coordinates not in COORDINATES:
        raise Refused(f"Resize with coordinate_transformation_mode={coordinates} is not defined")
    rounding = site.text("nearest_mode", "round_prefer_floor")
    if rounding not in ROUNDINGS:
        raise Refused(f"Resize with nearest_mode={rounding} is not defined")
    op = _op(site, coordinates, rounding)
    if op.mode == "cubic":
        cubic, excludes = float(site.attribute("cubic_coeff_a", -0.75)), bool(site.attribute("exclude_outside", 0))
        op = replace(op, cubic=cubic, excludes_outside=excludes)
    outside = float(site.attribute("extrapolation_value", 0.0)) if coordinates == CROP else 0.0
    return replace(op, outside=outside)


def _wanted(site: Site, axes: Sequence[int]) -> list[Wanted]:
    sizes, scales = site.optional(3), site.optional(2)
    if sizes is not None and sizes.shape != (0,):
        found = _sized(site, axes, known_dims(sizes, "the size of the image"))
    elif scales is not None:
        found = _scaled(site, axes, _numbers(scales, "scales"))
    else:
        raise Refused("Resize has neither scales nor sizes")
    if site.text("coordinate_transformation_mode", "half_pixel") != CROP:
        return found
    roi = _numbers(site.need(1), "regions")
    if len(roi) != 2 * len(axes):
        raise Refused(f"Resize of {len(axes)} axes can't have a region of {len(roi)} numbers")
    pairs = zip(found, roi[: len(axes)], roi[len(axes) :], strict=True)
    return [replace(each, start=start, end=end) for each, start, end in pairs]


def _numbers(value: Value, what: str) -> list[float]:
    if not is_constant(value) or value.data is None:
        raise Refused(f"the {what} of the image are computed")
    return [float(number) for number in value.data.reshape(-1)]


def _sized(site: Site, axes: Sequence[int], sizes: Sequence[Dim]) -> list[Wanted]:
    policy = site.text("keep_aspect_ratio_policy", "stretch")
    if len(sizes) != len(axes):
        raise Refused(f"Resize of {len(axes)} axes can't have {len(sizes)} sizes")
    have = [site.need(0).shape[axis] for axis in axes]
    if policy == "stretch":
        same = zip(sizes, have, strict=True)
        return [Wanted(size, 1.0 if size == dim else None) for size, dim in same]
    if policy not in ("not_larger", "not_smaller"):
        raise Refused(f"Resize with keep_aspect_ratio_policy={policy} is not defined")
    if not all(is_static(dim) and dim > 0 for dim in (*have, *sizes)):
        raise Refused("Resize that keeps the aspect ratio needs known sizes")
    quotients = [np.float32(size) / np.float32(dim) for size, dim in zip(sizes, have, strict=True)]
    scale = min(quotients) if policy == "not_larger" else max(quotients)
    return [Wanted(int(np.floor(scale * np.float32(dim) + np.float32(0.5))), float(scale)) for dim in have]


def _scaled(site: Site, axes: Sequence[int], factors: Sequence[float]) -> list[Wanted]:
    shape = site.need(0).shape
    if len(factors) != len(axes):
        raise Refused(f"{site.op_type} of {len(axes)} axes can't have {len(factors)} scales")
    if any(not factor > 0 for factor in factors):
        raise Refused(f"{site.op_type} with the scales {list(factors)} is not defined")
    return [Wanted(_size(shape[axis], factor), factor) for axis, factor in zip(axes, factors, strict=True)]


def _size(dim: Dim, scale: float) -> Dim:
    if is_static(dim):
        return int(np.floor(np.float32(dim) * np.float32(scale)))
    exact = Fraction(scale)
    if exact.denominator > 64:
        raise Refused(f"a scale of {scale:g} of the dynamic dim {dim} is not supported")
    return floor_div(dim * exact.numerator, exact.denominator)


def _resized(site: Site, axes: Sequence[int], wanted: Sequence[Wanted], op: Resize2d) -> Value:
    b, x = site.builder, site.need(0)
    shape, rank = x.shape, len(x.shape)
    found = {axis: Wanted(dim) for axis, dim in enumerate(shape)} | dict(zip(axes, wanted, strict=True))
    changed = [axis for axis, each in found.items() if each != Wanted(shape[axis])]
    if rank == 4 and changed and set(changed) <= {1, 2}:
        return _plane(b, x, found[1], found[2], op)  # channels last
    if rank == 2:
        made = _plane(b, b.reshape(x, (1, *shape, 1)), found[0], found[1], op)
        return b.reshape(made, made.shape[1:3])
    if rank not in (3, 4, 5) or set(changed) & {0, 1}:
        sizes = [each.size for each in found.values()]
        raise Refused(f"{site.op_type} of batch or channels is not supported: {list(shape)} to {sizes}")
    if rank == 5:
        return _volume(b, x, found, op)
    if rank == 3:
        line = b.reshape(b.permute(x, (0, 2, 1)), (shape[0], 1, shape[2], shape[1]))
        made = _plane(b, line, Wanted(1), found[2], op)
        return b.permute(b.reshape(made, (shape[0], found[2].size, shape[1])), (0, 2, 1))
    return b.permute(_plane(b, b.permute(x, (0, 2, 3, 1)), found[2], found[3], op), (0, 3, 1, 2))


def _plane(b: Builder, x: Value, rows: Wanted, columns: Wanted, op: Resize2d) -> Value:
    crop = (rows.start, columns.start, rows.end, columns.end)
    sized = replace(op, size=(rows.size, columns.size), scales=(rows.scale, columns.scale), crop=crop)
    return b.add(sized, x)


def _volume(b: Builder, x: Value, found: dict[int, Wanted], op: Resize2d) -> Value:
    if op.mode == "cubic" or op.coordinates == CROP:
        raise Refused(f"Resize of volumes with mode={op.mode} and {op.coordinates} is not supported")
    n, channels, depth, _, _ = x.shape
    rows, columns = found[3], found[4]
    planes = as_volume(b, _plane(b, as_planes(b, b.permute(x, _LAST)), rows, columns, op), (n, depth))
    layers = b.reshape(planes, (n, depth, product((rows.size, columns.size)), channels))
    made = _plane(b, layers, found[2], Wanted(layers.shape[2]), op)
    return b.permute(b.reshape(made, (n, found[2].size, rows.size, columns.size, channels)), _FIRST)
