"""Where the places of an output are in an image, and how its elements are mixed between pixels.

Coordinates are float32, step for step as ONNX Runtime computes them; templates/cpu/sampling/ has functions of their
names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ortisan.registry.dtypes import Array

HALF = np.float32(0.5)


@dataclass(frozen=True)
class Axis:
    """The sizes along an axis, what its places are divided by, and the part of it that is wanted."""

    have: int
    want: int
    scale: np.float32
    start: np.float32
    end: np.float32

    @property
    def is_unchanged(self) -> bool:
        return bool(self.have == self.want and self.scale == 1)


Coordinates: TypeAlias = Callable[[Array, Axis], Array]


def _half_pixel(at: Array, axis: Axis) -> Array:
    return np.asarray((at + HALF) / axis.scale - HALF)


def _half_pixel_symmetric(at: Array, axis: Axis) -> Array:
    adjustment = np.float32(axis.want) / (axis.scale * np.float32(axis.have))
    offset = np.float32(axis.have) / 2 * (1 - adjustment)
    return np.asarray(offset + (at + HALF) / axis.scale - HALF)


def _align_corners(at: Array, axis: Axis) -> Array:
    return np.asarray(at * np.float32(axis.have - 1) / np.float32(max(axis.want - 1, 1)))


def _tf_crop_and_resize(at: Array, axis: Axis) -> Array:
    last = np.float32(axis.have - 1)
    if axis.want > 1:
        return np.asarray(axis.start * last + at * (axis.end - axis.start) * last / np.float32(axis.want - 1))
    return np.full_like(at, HALF * (axis.start + axis.end) * last)


CROP = "tf_crop_and_resize"

COORDINATES: dict[str, Coordinates] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": lambda at, axis: _half_pixel(at, axis) if axis.want > 1 else at * 0,
    "align_corners": _align_corners,
    "asymmetric": lambda at, axis: at / axis.scale,
    "tf_half_pixel_for_nn": lambda at, axis: (at + HALF) / axis.scale,
    CROP: _tf_crop_and_resize,
}

ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda at: np.ceil(at - HALF),
    "round_prefer_ceil": lambda at: np.floor(at + HALF),
    "floor": np.floor,
    "ceil": np.ceil,
}


def cubic_weights(share: Array, a: float) -> list[Array]:
    """Of the pixels -1, 0, 1 and 2 behind the one before a place, which is `share` behind that. Keys' cubic."""

    def near(d: Array) -> Array:
        return np.asarray(((a + 2) * d - (a + 3)) * d * d + 1)

    def far(d: Array) -> Array:
        return np.asarray(((a * d - 5 * a) * d + 8 * a) * d - 4 * a)

    return [far(share + 1), near(share), near(1 - share), far(2 - share)]
