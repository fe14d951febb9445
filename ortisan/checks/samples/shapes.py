"""Dims of values as numbers, where they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ortisan.registry.dtypes import Array

Dims = tuple[int | None, ...]

_SMALL = 4096
_PAIR = 2


def dims_of(value: ir.Value | None) -> Dims | None:
    """The dims of a value, None for those that are not a number; None when the rank is unknown."""
    if value is None or value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else None for dim in value.shape)


def free_symbols(dim: int | ir.SymbolicDim) -> frozenset[str]:
    return dim.free_symbols() if isinstance(dim, ir.SymbolicDim) and dim.value is not None else frozenset()


def symbols_of(inputs: Sequence[ir.Value]) -> tuple[str, ...]:
    """The free symbols of the inputs' shapes, in the order in which they come."""
    names = {name: None for value in inputs for dim in value.shape or () for name in sorted(free_symbols(dim))}
    return tuple(names)


def extent(dim: int | ir.SymbolicDim, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    if not free_symbols(dim) <= sizes.keys():
        return 1
    return max(0, int(dim.evaluate(dict(sizes))))  # type: ignore[arg-type]  # every symbol has a number


def extents(value: ir.Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(extent(dim, sizes) for dim in value.shape or ())


def constant(value: ir.Value | None) -> Array | None:
    """The numbers of a small constant; None for all other values."""
    if value is None or value.is_graph_input():
        return None
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.size > _SMALL or tensor.dtype == ir.DataType.STRING:
        return None
    return np.asarray(tensor.numpy())


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def shared_symbols(inputs: Sequence[ir.Value]) -> frozenset[str]:
    """Symbols that are whole dims of two inputs, and part of no expression; what many inputs share is meant."""
    dims = [dim for value in inputs for dim in value.shape or () if isinstance(dim, ir.SymbolicDim)]
    inside = {name for dim in dims for name in free_symbols(dim) if dim.value != name}
    seen = [name for value in inputs for name in set(symbols_of([value]))]
    return frozenset(name for name in seen if seen.count(name) == _PAIR and name not in inside)
