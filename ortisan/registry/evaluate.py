"""Runs an op graph in numpy: the `reference` target, and the oracle of the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ortisan.errors import OptionError
from ortisan.registry.dims import evaluate, is_static
from ortisan.registry.dtypes import Array
from ortisan.registry.graph import DimValues, Graph, Value


def bind_symbols(graph: Graph, inputs: Sequence[Array]) -> dict[str, int]:
    """Reads the symbols off the input shapes; a shape that contradicts the graph is an `OptionError`."""
    symbols: dict[str, int] = {}
    for value, array in zip(graph.inputs, inputs, strict=True):
        if array.ndim != len(value.shape) or array.dtype != value.dtype.numpy:
            raise OptionError(f"input '{value.name}' is {array.dtype}{list(array.shape)}, expected {value.type}")
        for dim, size in zip(value.shape, array.shape, strict=True):
            if not is_static(dim) and dim.is_Symbol:
                symbols.setdefault(dim.name, size)
    for value, array in zip(graph.inputs, inputs, strict=True):
        for axis, (dim, size) in enumerate(zip(value.shape, array.shape, strict=True)):
            expected = evaluate(dim, symbols)
            if expected != size:
                meaning = "" if is_static(dim) else f"{dim} = "
                raise OptionError(f"dim {axis} of input '{value.name}' is {size}, expected {meaning}{expected}")
    return symbols


def evaluate_values(graph: Graph, inputs: Sequence[Array]) -> dict[Value, Array]:
    """Every value of the graph, computed with the ops' references."""
    dims = DimValues(bind_symbols(graph, inputs))
    values: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
    values.update((value, value.data) for value in graph.constants if value.data is not None)
    for node in graph.nodes:
        results = node.op.reference([values[value] for value in node.inputs], dims)
        values.update(zip(node.outputs, map(np.asarray, results), strict=True))
    return values


def evaluate_graph(graph: Graph, inputs: Mapping[str, Array] | Sequence[Array]) -> tuple[Array, ...]:
    """The graph's outputs for these inputs, given in order or by name."""
    if isinstance(inputs, Mapping):
        missing = [value.name for value in graph.inputs if value.name not in inputs]
        if missing:
            raise OptionError(f"input '{missing[0]}' is missing")
        inputs = [np.asarray(inputs[value.name]) for value in graph.inputs]
    values = evaluate_values(graph, inputs)
    return tuple(values[value] for value in graph.outputs)
