"""Where an operand lies in the memory of an op's input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

from ortisan.codegen.expressions import contiguous_strides
from ortisan.registry.dims import Dim, Shape, product, settle
from ortisan.registry.dtypes import Array
from ortisan.registry.graph import DimValues, TensorType


@dataclass(frozen=True)
class Strided:
    """A tensor of this shape in the memory of an input, in elements."""

    source: int
    """Which input."""
    offset: Dim
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]

    def type(self, inputs: Sequence[TensorType]) -> TensorType:
        return TensorType(inputs[self.source].dtype, self.shape)

    def array(self, inputs: Sequence[Array], dims: DimValues) -> Array:
        memory = np.ascontiguousarray(inputs[self.source]).reshape(-1)[dims(self.offset) :]
        strides = [memory.itemsize * dims(stride) for stride in self.strides]
        return np.lib.stride_tricks.as_strided(memory, dims.shape(self.shape), strides, writeable=False)

    def to_json(self) -> dict[str, Any]:
        """For the interpreter; dims are made texts where it is written."""
        strides = list(self.strides)
        return {"source": self.source, "offset": self.offset, "shape": list(self.shape), "strides": strides}


def whole(source: int, shape: Shape) -> Strided:
    """All of an input."""
    return Strided(source, 0, shape, contiguous_strides(shape))


def repeated(source: int, offset: Dim, have: Shape, strides: Sequence[Dim], shape: Shape) -> Strided:
    """A tensor with dims `have` in a larger shape: what is 1 is repeated, also what turns out to be 1 when it runs."""
    missing = len(shape) - len(have)
    own = [
        stride if dim == extent else 0 if dim == 1 else settle(product((sympy.Min(1, dim - 1), stride)))
        for dim, extent, stride in zip(have, shape[missing:], strides, strict=True)
    ]
    return Strided(source, offset, shape, (*(0,) * missing, *own))
