"""The tensors of AITemplate's graph as flat arrays, read and written as kernels do: by accessor, view and offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sympy

Array = Any


def numpy_dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype({"float": "float32", "int": "int32"}.get(name, name))


class Memory:
    """One run: numbers for the symbols, and a buffer for each tensor that is no view of another."""

    def __init__(self, symbols: Mapping[str, int], given: Mapping[str, Array]) -> None:
        self.symbols = {sympy.Symbol(name): number for name, number in symbols.items()}
        self._given = given
        self._buffers: dict[int, Array] = {}
        self._numbers: dict[Any, int] = {}

    def number(self, dim: Any) -> int:
        value = dim.symbolic_value()
        if value not in self._numbers:
            expression = sympy.sympify(value)
            self._numbers[value] = int(expression.subs({s: self.symbols[s] for s in expression.free_symbols}))
        return self._numbers[value]

    def evaluate(self, dim: int | str) -> int:
        """A dim that the program gives as text."""
        if isinstance(dim, int):
            return dim
        expression = sympy.sympify(dim, locals={symbol.name: symbol for symbol in self.symbols})
        return int(expression.subs({s: self.symbols[s] for s in expression.free_symbols}))

    def shape(self, dims: Sequence[Any]) -> tuple[int, ...]:
        return tuple(self.number(dim) for dim in dims)

    def buffer(self, tensor: Any) -> Array:
        """The memory of a tensor; a view has that of what it views."""
        while tensor._attrs["is_view_of"] is not None:
            tensor = tensor._attrs["is_view_of"]
        if id(tensor) not in self._buffers:
            self._buffers[id(tensor)] = self._new_buffer(tensor)
        return self._buffers[id(tensor)]

    def _new_buffer(self, tensor: Any) -> Array:
        name, dtype, data = tensor._attrs["name"], numpy_dtype(tensor.dtype()), tensor._attrs.get("data")
        count = int(np.prod(self.shape(tensor.shape()), dtype=np.int64))
        if name in self._given:
            return np.ascontiguousarray(self._given[name]).reshape(-1)
        if data is not None:
            # A constant of AITemplate's own is as large as its dims can be.
            return np.frombuffer(data.to_bytes(), dtype)[:count]
        return _unwritten(count, dtype)

    def value(self, tensor: Any) -> Array:
        return self.buffer(tensor).reshape(self.shape(tensor.shape()))

    def read(self, tensor: Any, accessor: Any = None) -> Array:
        if accessor is None:
            return self.value(tensor)
        shape = self.shape(accessor.original_shapes)
        if accessor.stride_dim is None:
            return self.buffer(tensor).reshape(shape)
        return self._part(tensor, accessor).reshape(shape)

    def write(self, tensor: Any, accessor: Any, result: Array) -> None:
        if accessor is not None and accessor.stride_dim is not None:
            part = self._part(tensor, accessor)
            part[...] = result.astype(part.dtype).reshape(part.shape)
            return
        buffer = self.buffer(tensor)
        if result.size != buffer.size:
            raise ValueError(f"{tensor._attrs['name']} holds {buffer.size} elements, and {result.shape} is written")
        buffer[...] = result.astype(buffer.dtype).reshape(-1)

    def _part(self, tensor: Any, accessor: Any) -> Array:
        """The columns of the base tensor that the accessor sees, its rows being all dims before the stride dim."""
        whole = accessor.actual_total_elements_from_stride_dim
        count = accessor.original_total_elements_from_stride_dim
        rows = self.buffer(tensor).reshape(-1, whole)
        return rows[:, accessor.offset : accessor.offset + count]


def _unwritten(count: int, dtype: Any) -> Array:
    """Memory that shows when it is read before it is written."""
    if dtype.kind == "f" or dtype.name == "bfloat16":
        return np.full(count, np.nan).astype(dtype)
    return np.zeros(count, dtype)
