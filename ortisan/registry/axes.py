"""Axis numbers as ONNX writes them: possibly negative, as an attribute in old opsets and as an input in new ones."""

from __future__ import annotations

from ortisan.registry.builder import known_ints
from ortisan.registry.entries import Site
from ortisan.registry.refusal import Refused


def normalize_axis(axis: int, rank: int, upper: int | None = None) -> int:
    """Returns the axis counted from the front; `upper` is the largest allowed one (default: rank - 1)."""
    top = rank - 1 if upper is None else upper
    result = axis + rank if axis < 0 else axis
    if not 0 <= result <= max(top, 0):
        raise Refused(f"axis {axis} is outside a tensor of {rank} dims")
    return result


def read_axes(site: Site, rank: int, input_index: int | None) -> tuple[int, ...] | None:
    """The axes from the attribute or the constant input, sorted; None when they are absent."""
    axes = site.attributes.get("axes")
    if axes is None and input_index is not None:
        value = site.optional(input_index)
        axes = None if value is None else known_ints(value, "the axes")
    if axes is None:
        return None
    return tuple(sorted({normalize_axis(axis, rank) for axis in axes}))
