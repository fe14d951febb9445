"""Images between their pixels: AITemplate resizes by other rules, and has neither samples at a grid nor regions.

An image whose pixels are repeated is an expansion: [N,H,1,W,1,C] -> [N,H,f,W,g,C].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.composer import Composer
from ortisan.registry.dims import Dim, is_static, settle
from ortisan.registry.graph import DimValues, Op, Value
from ortisan.registry.ops import Expand, Resize2d
from ortisan.registry.refusal import Refused

_MOST_TIMES = 16
_ANY_SIZE = ("asymmetric", "half_pixel")
"""The coordinates that depend on the scale alone."""
_SIZES = (1, 2, 3, 7, 64, 250)
"""Where it is tried whether each pixel is repeated, if the size is known at run time only."""


def _compose_resize(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Resize2d)
    (x,) = inputs
    n, height, width, channels = x.shape
    times = [_times(have, want) for have, want in zip((height, width), op.size, strict=True)]
    if op.mode != "nearest" or not all(times) or not _repeats(op, (height, width), times):
        raise Refused("AITemplate resizes images by other rules; only whole pixels that are repeated are taken")
    rows = b.reshape(x, (n, height, 1, width, 1, channels))
    wide = b.add(Expand((n, height, times[0], width, times[1], channels)), rows)
    return [b.reshape(wide, (n, *op.size, channels))]


def _times(have: Dim, want: Dim) -> int:
    """How often a pixel is repeated, 0 if that is no number known at compile time."""
    if is_static(have) and is_static(want):
        return want // have if have and want % have == 0 else 0
    return next((times for times in range(1, _MOST_TIMES) if settle(want - times * have) == 0), 0)


def _repeats(op: Resize2d, image: Sequence[Dim], times: Sequence[int]) -> bool:
    """Whether place i takes pixel i / times, by the op's own meaning along each axis."""
    for axis, (have, count) in enumerate(zip(image, times, strict=True)):
        if not is_static(have) and op.coordinates not in _ANY_SIZE:
            return False
        for size in (have,) if is_static(have) else _SIZES:
            line = np.arange(size, dtype=np.float64).reshape((1, size, 1, 1) if axis == 0 else (1, 1, size, 1))
            wanted = (size * count, 1) if axis == 0 else (1, size * count)
            (made,) = replace(op, size=wanted).reference([line], DimValues({}))
            if not np.array_equal(made, line.repeat(count, axis=1 + axis)):
                return False
    return True


OPS = (AitOp(Resize2d, compose=_compose_resize),)
