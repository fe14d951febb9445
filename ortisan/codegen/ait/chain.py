"""A chain of scalar functions over strided operands: what one elementwise kernel of ours computes.

y[i] = f(a[offset + sum(strides * i)], b[..], ..) for all i < shape. An operand that is no tensor is its own address: a
number where its strides are 0, the elements of an arange elsewhere. So broadcasting, slices, permutes and expansions
are strides, and cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ortisan.registry.dims import Dim, Facts, Shape
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import DimValues, Op, TensorType
from ortisan.registry.ops import Cast, Elementwise


@dataclass(frozen=True)
class Leaf:
    """Input `operand` read at an address, affine in the loop's indices; without an input, the address itself."""

    operand: int | None
    offset: Dim
    strides: tuple[Dim, ...]


@dataclass(frozen=True)
class Literal:
    """A number that is known when it is compiled, where no address can be it."""

    number: float
    dtype: DType


@dataclass(frozen=True)
class Step:
    """A function of earlier results: the leaves, the literals, then the steps before it."""

    op: Elementwise | Cast
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Chain(Op):
    """One loop over `shape`; `results` are the numbers of what it gives, among leaves, literals and steps."""

    shape: Shape
    leaves: tuple[Leaf, ...]
    literals: tuple[Literal, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]

    stem: ClassVar[str] = "chain"
    ait: ClassVar[str | None] = None

    def types(self, inputs: Sequence[TensorType]) -> list[DType]:
        """The dtype of each leaf, literal and step."""
        found = [DType.INT64 if leaf.operand is None else inputs[leaf.operand].dtype for leaf in self.leaves]
        found += [literal.dtype for literal in self.literals]
        for step in self.steps:
            operands = [TensorType(found[index], ()) for index in step.operands]
            found.append(step.op.infer(operands, Facts(""))[0].dtype)
        return found

    def infer(self, inputs: Sequence[TensorType], facts: Facts) -> tuple[TensorType, ...]:
        types = self.types(inputs)
        return tuple(TensorType(types[number], self.shape) for number in self.results)

    def reference(self, inputs: Sequence[Array], dims: DimValues) -> tuple[Array, ...]:
        shape = dims.shape(self.shape)
        values = [self._read(leaf, inputs, shape, dims) for leaf in self.leaves]
        values += [np.asarray(literal.number, literal.dtype.numpy) for literal in self.literals]
        for step in self.steps:
            values.append(step.op.reference([values[index] for index in step.operands], dims)[0])
        return tuple(np.ascontiguousarray(np.broadcast_to(values[number], shape)) for number in self.results)

    @staticmethod
    def _read(leaf: Leaf, inputs: Sequence[Array], shape: tuple[int, ...], dims: DimValues) -> Array:
        strides = [dims(stride) for stride in leaf.strides]
        at = np.full((1,) * len(shape), dims(leaf.offset), np.int64)
        for axis, stride in enumerate(strides):
            at = at + stride * np.arange(shape[axis]).reshape(*(-1 if a == axis else 1 for a in range(len(shape))))
        if leaf.operand is None:
            return at
        if 0 in shape:
            return np.zeros(shape, inputs[leaf.operand].dtype)
        return inputs[leaf.operand].reshape(-1)[at]
