"""Ops that move elements without computing: reshape, permute, expand, concatenate, split, dynamic_slice, pad, trilu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ortisan.registry.dims import Dim, Facts, Shape, is_static, settle
from ortisan.registry.dtypes import Array
from ortisan.registry.graph import DimValues, Op, TensorType
from ortisan.registry.refusal import Refused

__all__ = ["Concatenate", "DynamicSlice", "Expand", "Move", "Pad", "Permute", "Reshape", "Split", "Trilu"]


class Move(Op):
    """Base of the ops that compute nothing."""

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Dim:
        return 0


@dataclass(frozen=True)
class Reshape(Move):
    """The same elements under another shape. torch: x.reshape(shape)."""

    shape: Shape

    stem: ClassVar[str] = "reshape"
    ait: ClassVar[str | None] = "reshape, flatten, squeeze, unsqueeze"
    view: ClassVar[bool] = True

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        (x,) = inputs
        result = TensorType(x.dtype, self.shape)
        facts.equal(x.elements, result.elements, f"element counts of {x} and {result}")
        return (result,)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        return (inputs[0].reshape(dims.shape(self.shape)),)

    def symbolic(self, inputs: Sequence[Array]) -> Array | None:
        return inputs[0].reshape(self.shape) if all(map(is_static, self.shape)) else None


@dataclass(frozen=True)
class Permute(Move):
    """Axis i of the output is axis order[i] of the input. torch: x.permute(order)."""

    order: tuple[int, ...]

    stem: ClassVar[str] = "permute"
    ait: ClassVar[str | None] = "permute; ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        (x,) = inputs
        if sorted(self.order) != list(range(x.rank)):
            raise Refused(f"{list(self.order)} is not an order of the {x.rank} axes")
        return (TensorType(x.dtype, tuple(x.shape[axis] for axis in self.order)),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        return (np.transpose(inputs[0], self.order),)

    def symbolic(self, inputs: Sequence[Array]) -> Array | None:
        return np.transpose(inputs[0], self.order)


@dataclass(frozen=True)
class Expand(Move):
    """Repeats dims of size 1 up to `shape`. torch: x.expand(shape)."""

    shape: Shape

    stem: ClassVar[str] = "expand"
    ait: ClassVar[str | None] = "expand; ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        (x,) = inputs
        if x.rank > len(self.shape):
            raise Refused(f"{x} has more dims than the shape it is expanded to")
        return (TensorType(x.dtype, facts.broadcast(x.shape, self.shape)),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        target = np.broadcast_shapes(inputs[0].shape, dims.shape(self.shape))
        return (np.broadcast_to(inputs[0], target),)

    def symbolic(self, inputs: Sequence[Array]) -> Array | None:
        if not all(map(is_static, self.shape)):
            return None
        return np.broadcast_to(inputs[0], np.broadcast_shapes(inputs[0].shape, self.shape))


@dataclass(frozen=True)
class Concatenate(Move):
    """Joins tensors along an axis. torch: torch.cat."""

    axis: int

    stem: ClassVar[str] = "concatenate"
    ait: ClassVar[str | None] = "concatenate"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        first = inputs[0]
        shape = list(first.shape)
        for other in inputs[1:]:
            if other.dtype is not first.dtype or other.rank != first.rank:
                raise Refused(f"can't join {first} and {other}")
            for axis, dim in enumerate(other.shape):
                if axis == self.axis:
                    shape[axis] = settle(shape[axis] + dim)
                else:
                    shape[axis] = facts.equal(shape[axis], dim, f"dims {axis} of the joined tensors")
        return (TensorType(first.dtype, tuple(shape)),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        return (np.concatenate(inputs, axis=self.axis),)

    def symbolic(self, inputs: Sequence[Array]) -> Array | None:
        return np.concatenate([np.asarray(x, dtype=object) for x in inputs], axis=self.axis)


@dataclass(frozen=True)
class Split(Move):
    """Cuts a tensor along an axis into pieces of these sizes. torch: x.split(sizes, dim)."""

    axis: int
    sizes: tuple[Dim, ...]

    stem: ClassVar[str] = "split"
    ait: ClassVar[str | None] = "split; ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        (x,) = inputs
        facts.equal(sum(self.sizes), x.shape[self.axis], "the sizes' sum and the dim that is split")
        before, after = x.shape[: self.axis], x.shape[self.axis + 1 :]
        return tuple(TensorType(x.dtype, (*before, size, *after)) for size in self.sizes)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        ends = np.cumsum(dims.shape(self.sizes))[:-1]
        return tuple(np.split(inputs[0], ends, axis=self.axis))


@dataclass(frozen=True)
class DynamicSlice(Move):
    """x[start : : step] with `size` elements, per axis; steps may be negative. torch: x[a:b:c]."""

    starts: tuple[Dim, ...]
    sizes: tuple[Dim, ...]
    steps: tuple[int, ...]

    stem: ClassVar[str] = "dynamic_slice"
    ait: ClassVar[str | None] = "dynamic_slice; ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        return (TensorType(inputs[0].dtype, self.sizes),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        return (self._take(inputs[0], dims.shape(self.starts), dims.shape(self.sizes)),)

    def _take(self, x: Array, starts: Sequence[int], sizes: Sequence[int]) -> Array:
        for axis, (start, size, step) in enumerate(zip(starts, sizes, self.steps, strict=True)):
            x = np.take(x, start + step * np.arange(size), axis=axis)
        return x

    def symbolic(self, inputs: Sequence[Array]) -> Array | None:
        if not all(map(is_static, (*self.starts, *self.sizes))):
            return None
        return self._take(inputs[0], self.starts, self.sizes)


PadMode = Literal["constant", "edge", "reflect", "wrap"]


@dataclass(frozen=True)
class Pad(Move):
    """Adds (or with negative numbers removes) elements at both ends of each axis. torch: F.pad.

    A second input, when there is one, is the scalar for mode "constant"; without it zero is used.
    """

    before: tuple[Dim, ...]
    after: tuple[Dim, ...]
    mode: PadMode = "constant"

    stem: ClassVar[str] = "pad"
    ait: ClassVar[str | None] = "pad_last_dim; concatenate, full"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        x = inputs[0]
        shape = []
        for dim, before, after in zip(x.shape, self.before, self.after, strict=True):
            padded = settle(dim + before + after)
            facts.at_least(padded, 0, "a padded dim")
            widest = max(before, after) if is_static(before) and is_static(after) else 0
            if self.mode == "reflect" and widest > 0:
                facts.at_least(dim, widest + 1, "a dim padded by reflection")
            if self.mode in ("edge", "wrap") and widest > 0:
                facts.at_least(dim, 1, "a padded dim")
            shape.append(padded)
        return (TensorType(x.dtype, tuple(shape)),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x = inputs[0]
        widths = list(zip(dims.shape(self.before), dims.shape(self.after), strict=True))
        window = tuple(slice(max(-b, 0), n - max(-a, 0)) for (b, a), n in zip(widths, x.shape, strict=True))
        options: dict[str, Any] = {}
        if self.mode == "constant" and len(inputs) > 1:
            options["constant_values"] = inputs[1].reshape(())
        grown = [(max(b, 0), max(a, 0)) for b, a in widths]
        return (np.pad(x[window], grown, mode=self.mode, **options),)


@dataclass(frozen=True)
class Trilu(Move):
    """Keeps the upper or lower triangle of the last two dims, zero elsewhere. torch: x.triu(k), x.tril(k)."""

    upper: bool
    k: int

    stem: ClassVar[str] = "trilu"
    ait: ClassVar[str | None] = "elementwise"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        (x,) = inputs
        if x.rank < 2:
            raise Refused(f"a triangle needs two dims, {x} has {x.rank}")
        return (x,)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        return ((np.triu if self.upper else np.tril)(inputs[0], self.k),)
