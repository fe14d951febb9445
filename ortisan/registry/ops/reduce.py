"""Reductions over a block of neighbouring axes, `argmax` / `argmin` and `cumsum` along one axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ortisan.registry.dims import Facts, Shape
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import DimValues, Op, TensorType
from ortisan.registry.refusal import Refused

__all__ = ["ArgReduce", "CumSum", "Reduce"]


def _log_sum_exp(x: Array, **where: Any) -> Any:
    top = np.max(x, initial=-np.inf, **where)
    top = np.where(np.isfinite(top), top, 0.0)
    keep = np.expand_dims(top, where["axis"])
    return np.log(np.sum(np.exp(x - keep), **where)) + top


def _mean(x: Array, **where: Any) -> Any:
    count = max(1, int(np.prod([x.shape[axis] for axis in where["axis"]])))
    total = np.sum(x, dtype=x.dtype, **where)
    return total / count if x.dtype.kind == "f" else np.where(total < 0, -(-total // count), total // count)


def _lowest(x: Array) -> Any:
    return -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min


def _highest(x: Array) -> Any:
    return np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, **w: np.sum(x, dtype=x.dtype, **w),
    "mean": _mean,
    "max": lambda x, **w: np.max(x, initial=_lowest(x), **w),
    "min": lambda x, **w: np.min(x, initial=_highest(x), **w),
    "prod": lambda x, **w: np.prod(x, dtype=x.dtype, **w),
    "l1": lambda x, **w: np.sum(np.abs(x), dtype=x.dtype, **w),
    "l2": lambda x, **w: np.sqrt(np.sum(np.square(x), **w)),
    "sum_square": lambda x, **w: np.sum(np.square(x), dtype=x.dtype, **w),
    "log_sum": lambda x, **w: np.log(np.sum(x, **w)),
    "log_sum_exp": _log_sum_exp,
}
"""Kind -> numpy meaning. The C++ functor of a kind has its name (templates/cpu/reduce/reduce.h)."""

_FLOAT_ONLY = frozenset({"l2", "log_sum", "log_sum_exp"})


@dataclass(frozen=True)
class Reduce(Op):
    """Reduces axes first..last. torch: x.sum(dim=(first, ..., last))."""

    kind: str
    first: int
    last: int
    keepdim: bool

    stem: ClassVar[str] = "reduce"
    ait: ClassVar[str | None] = "reduce_sum, reduce_mean, reduce_max, reduce_min, elementwise; ours"

    @property
    def name(self) -> str:
        return f"reduce_{self.kind}"

    @property
    def axes(self) -> tuple[int, ...]:
        return tuple(range(self.first, self.last + 1))

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        (x,) = inputs
        boolean = x.dtype is DType.BOOL and self.kind in ("max", "min")
        if not (x.dtype.is_float or boolean or (x.dtype.is_integer and self.kind not in _FLOAT_ONLY)):
            raise Refused(f"{self.name} of {x.dtype.value} is not defined")
        return (TensorType(x.dtype, reduced_shape(x.shape, self.axes, self.keepdim)),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        (x,) = inputs
        if x.dtype == np.bool_:
            result = (np.any if self.kind == "max" else np.all)(x, axis=self.axes)
        else:
            wide = x.astype(np.float64) if DType.from_numpy(x.dtype).is_float else x
            with np.errstate(all="ignore"):
                result = REDUCTIONS[self.kind](wide, axis=self.axes)
        result = np.asarray(result)
        if self.keepdim:
            result = np.expand_dims(result, self.axes)
        with np.errstate(all="ignore"):
            return (result.astype(x.dtype),)


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdim: bool) -> Shape:
    if keepdim:
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


@dataclass(frozen=True)
class ArgReduce(Op):
    """The index of the largest or smallest element along an axis. torch: x.argmax(dim)."""

    kind: str  # "max" | "min"
    axis: int
    keepdim: bool
    last: bool = False
    """Of equal elements, the last instead of the first."""

    stem: ClassVar[str] = "argmax"
    ait: ClassVar[str | None] = "ours"

    @property
    def name(self) -> str:
        return f"arg{self.kind}"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        (x,) = inputs
        if x.dtype is DType.BOOL:
            raise Refused(f"{self.name} of bool is not defined")
        facts.at_least(x.shape[self.axis], 1, f"{self.name} over an empty axis")
        return (TensorType(DType.INT64, reduced_shape(x.shape, (self.axis,), self.keepdim)),)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        (x,) = inputs
        pick = np.argmax if self.kind == "max" else np.argmin
        if self.last:
            index = x.shape[self.axis] - 1 - pick(np.flip(x, self.axis), axis=self.axis)
        else:
            index = pick(x, axis=self.axis)
        index = np.asarray(index, np.int64)
        return (np.expand_dims(index, self.axis) if self.keepdim else index,)


@dataclass(frozen=True)
class CumSum(Op):
    """Running sums along an axis. torch: x.cumsum(dim)."""

    axis: int
    exclusive: bool = False
    reverse: bool = False

    stem: ClassVar[str] = "cumsum"
    ait: ClassVar[str | None] = "ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        (x,) = inputs
        if x.dtype is DType.BOOL:
            raise Refused("cumsum of bool is not defined")
        return (x,)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        (x,) = inputs
        wide = x.astype(np.float64) if DType.from_numpy(x.dtype).is_float else x
        if self.reverse:
            wide = np.flip(wide, self.axis)
        total = np.cumsum(wide, axis=self.axis, dtype=wide.dtype)
        if self.exclusive:
            total = total - wide
        if self.reverse:
            total = np.flip(total, self.axis)
        return (total.astype(x.dtype),)
