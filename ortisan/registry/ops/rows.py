"""Normalisations: `softmax`, `log_softmax` along one axis, `layernorm` and `rms_norm` over the trailing ones, and
`group_norm` of images with the channels last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ortisan.registry.dims import Dim, Facts, product
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import DimValues, Op, TensorType
from ortisan.registry.refusal import Refused

__all__ = ["GroupNorm", "LayerNorm", "RmsNorm", "Softmax"]


@dataclass(frozen=True)
class Softmax(Op):
    """exp(x) / sum(exp(x)) along `axis`, or its logarithm. torch: F.softmax, F.log_softmax."""

    axis: int
    log: bool = False

    stem: ClassVar[str] = "softmax"
    ait: ClassVar[str | None] = "softmax; reduce_max, reduce_sum, elementwise; ours"

    @property
    def name(self) -> str:
        return "log_softmax" if self.log else "softmax"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        (x,) = inputs
        if not x.dtype.is_float:
            raise Refused(f"{self.name} of {x.dtype.value} is not defined")
        return (x,)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x = inputs[0].astype(np.float64)
        if x.size == 0:
            return (inputs[0],)
        with np.errstate(all="ignore"):
            shifted = x - x.max(axis=self.axis, keepdims=True)
            total = np.exp(shifted).sum(axis=self.axis, keepdims=True)
            y = shifted - np.log(total) if self.log else np.exp(shifted) / total
            return (y.astype(inputs[0].dtype),)


@dataclass(frozen=True)
class LayerNorm(Op):
    """(x - mean) / sqrt(var + eps) * gamma + beta over the dims from `axis` on. torch: F.layer_norm.

    Inputs: x, then gamma and beta as the flags say, both of the normalised shape.
    Outputs: y, and with `statistics` also mean and 1/std, in float32 or wider.
    """

    axis: int
    epsilon: float
    gamma: bool = True
    beta: bool = True
    statistics: bool = False

    stem: ClassVar[str] = "layernorm"
    ait: ClassVar[str | None] = "layernorm"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        x = inputs[0]
        if not x.dtype.is_float or any(t.dtype is not x.dtype for t in inputs):
            raise Refused(f"layernorm needs one float type, not {', '.join(t.dtype.value for t in inputs)}")
        for affine in inputs[1:]:
            facts.equal(affine.elements, product(x.shape[self.axis :]), "scale and normalised size")
        if not self.statistics:
            return (x,)
        wide = TensorType(_statistics_type(x), (*x.shape[: self.axis], *(1 for _ in x.shape[self.axis :])))
        return (x, wide, wide)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x = inputs[0].astype(np.float64)
        axes = tuple(range(self.axis, x.ndim))
        with np.errstate(all="ignore"):
            mean = x.mean(axis=axes, keepdims=True)
            inverse = 1 / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + self.epsilon)
            y = (x - mean) * inverse
            affine = iter(t.astype(np.float64).reshape(x.shape[self.axis :]) for t in inputs[1:])
            if self.gamma:
                y = y * next(affine)
            if self.beta:
                y = y + next(affine)
            outputs = (y.astype(inputs[0].dtype),)
            if not self.statistics:
                return outputs
            wide = np.float64 if inputs[0].dtype == np.float64 else np.float32
            return (*outputs, mean.astype(wide), inverse.astype(wide))


@dataclass(frozen=True)
class GroupNorm(Op):
    """(x - mean) / sqrt(var + eps) * gamma + beta of x[N,...,C] over places and a group's channels.
    torch: F.group_norm.

    Inputs: x, gamma[C] and beta[C]. A group for each channel is an instance normalisation.
    """

    groups: Dim
    epsilon: float

    stem: ClassVar[str] = "group_norm"
    ait: ClassVar[str | None] = "ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        x = inputs[0]
        if not x.dtype.is_float or any(t.dtype is not x.dtype for t in inputs):
            raise Refused(f"group_norm needs one float type, not {', '.join(t.dtype.value for t in inputs)}")
        if x.rank < 2 or any(t.rank != 1 for t in inputs[1:]):
            raise Refused(
                f"group_norm needs batch, channels, and a number per channel, not {', '.join(map(str, inputs))}"
            )
        if self.groups == 0:
            raise Refused("a normalisation of 0 groups is not defined")
        facts.divisible(x.shape[-1], self.groups, "channels and groups")
        for affine in inputs[1:]:
            facts.equal(affine.shape[0], x.shape[-1], "scale and channels")
        return (x,)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x, gamma, beta = (t.astype(np.float64) for t in inputs)
        groups = dims(self.groups)
        if x.size == 0:
            return (inputs[0],)
        parts = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
        with np.errstate(all="ignore"):
            mean = parts.mean(axis=(1, 3), keepdims=True)
            variance = ((parts - mean) ** 2).mean(axis=(1, 3), keepdims=True)
            normal = ((parts - mean) / np.sqrt(variance + self.epsilon)).reshape(x.shape)
            return ((normal * gamma + beta).astype(inputs[0].dtype),)


@dataclass(frozen=True)
class RmsNorm(Op):
    """x / sqrt(mean(x^2) + eps) * gamma over the dims from `axis` on. torch: F.rms_norm.

    Inputs: x, then gamma of the normalised shape when the flag says so. Squares are summed in float32 or wider.
    """

    axis: int
    epsilon: float
    gamma: bool = True

    stem: ClassVar[str] = "rms_norm"
    ait: ClassVar[str | None] = "ours"

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        x = inputs[0]
        if not x.dtype.is_float or any(t.dtype is not x.dtype for t in inputs):
            raise Refused(f"rms_norm needs one float type, not {', '.join(t.dtype.value for t in inputs)}")
        for gamma in inputs[1:]:
            facts.equal(gamma.elements, product(x.shape[self.axis :]), "scale and normalised size")
        return (x,)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        x = inputs[0].astype(np.float64)
        with np.errstate(all="ignore"):
            squares = (x * x).mean(axis=tuple(range(self.axis, x.ndim)), keepdims=True)
            y = x / np.sqrt(squares + self.epsilon)
            if self.gamma:
                y = y * inputs[1].astype(np.float64).reshape(x.shape[self.axis :])
            return (y.astype(inputs[0].dtype),)


def _statistics_type(x: TensorType) -> DType:
    return DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
