"""Slices and selections by constant indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ortisan.codegen.ait.dialect import Composer
from ortisan.codegen.ait.dims import range_of
from ortisan.registry.dims import Dim, is_static, settle
from ortisan.registry.dtypes import Array
from ortisan.registry.graph import Op, Value
from ortisan.registry.ops import DynamicSlice, Gather, IndexSelect
from ortisan.registry.refusal import Refused


def dynamic_slice(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, DynamicSlice)
    (x,) = inputs
    if x.shape == op.sizes and all(start == 0 for start in op.starts):
        return [x]
    for axis in range(len(x.shape)):
        slice_ends(x.shape[axis], op.starts[axis], op.sizes[axis], op.steps[axis])
        _check_fits(b, x.shape[axis], op.starts[axis], op.sizes[axis])
    return [b.add(op, x)]


def slice_ends(dim: Dim, start: Dim, size: Dim, step: int) -> tuple[int | None, int | None]:
    """(start, end) as AITemplate takes them: numbers, negative from the end, None for all."""
    if step != 1 and size != 1:
        raise Refused(f"AITemplate slices with step 1, not {step}")
    if start == 0 and settle(size - dim) == 0:
        return None, None
    if is_static(start) and is_static(size):
        return int(start), int(start + size)
    from_end = settle(start - dim)
    left = settle(dim - start - size)
    if is_static(from_end) and from_end < 0 and is_static(left):
        return int(from_end), -int(left) if left else None
    if start == 0 and is_static(left) and left > 0:
        return 0, -int(left)
    raise Refused(f"AITemplate slices between fixed places, not {size} elements from {start} of {dim}")


def _check_fits(b: Composer, dim: Dim, start: Dim, size: Dim) -> None:
    """A slice of fixed size reads past the end of a shorter dim, and AITemplate does not look."""
    if is_static(dim) or (start == 0 and settle(size - dim) == 0):
        return
    least = range_of(dim, b.bounds)[0]
    needed = settle(start + size) if is_static(start) else settle(dim - start)
    if is_static(needed) and least < needed:
        raise Refused(f"a slice of {needed} needs a dim that is never shorter, and {dim} may be {least}")


def index_select(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """One constant index is a slice; several are numbered from the start."""
    assert isinstance(op, IndexSelect)
    x, indices = inputs
    if indices.data is None:
        return [b.add(op, x, indices)]
    dim, axis = x.shape[op.axis], op.axis
    after = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    numbers = indices.data.astype(np.int64).reshape(-1)
    if numbers.size == 1:
        start = settle(dim + int(numbers[0])) if numbers[0] < 0 else int(numbers[0])
        starts = tuple(start if a == axis else 0 for a in range(len(x.shape)))
        sizes = tuple(1 if a == axis else d for a, d in enumerate(x.shape))
        picked = dynamic_slice(b, DynamicSlice(starts, sizes, (1,) * len(sizes)), (x,))[0]
        return [b.reshape(picked, after)]
    chosen = b.constant(_from_start(b, numbers, dim), "indices")
    return [b.reshape(b.add(IndexSelect(axis), x, chosen), after)]


def gather(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Gather)
    x, indices = inputs
    if indices.data is not None:
        indices = b.constant(_from_start(b, indices.data.astype(np.int64), x.shape[op.axis]), "indices")
    return [b.add(op, x, indices)]


def _from_start(b: Composer, numbers: Array, dim: Dim) -> Array:
    if not is_static(dim) and (numbers < 0).any():
        raise Refused("AITemplate counts indices from the start, and the dim is known at run time only")
    result = np.where(numbers < 0, numbers + int(dim), numbers) if is_static(dim) else numbers
    if (result >= range_of(dim, b.bounds)[0]).any() or (result < 0).any():
        raise Refused(f"an index is outside of the dim {dim}, or may be")
    return np.ascontiguousarray(result)
