"""Which values of a graph bound the sizes of all others, whatever its symbols are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ortisan.registry.dims import Dim, is_static
from ortisan.registry.graph import Graph, Value

_HARMLESS = 1 << 47
"""Bytes that any call may address: `most_bytes` in templates/graph/sizes.h."""


@dataclass(frozen=True, eq=False)
class _Size:
    """`bytes` times the symbolic dims, each counted as often as it occurs. Zeros count as ones."""

    value: Value
    bytes: int
    dims: Counter[Dim]

    def within(self, other: _Size) -> bool:
        return self.bytes <= other.bytes and self.dims <= other.dims


def largest_values(graph: Graph) -> tuple[Value, ...]:
    """The fewest values such that none of the graph ever has more bytes than one of these."""
    best: dict[frozenset[tuple[Dim, int]], _Size] = {}
    for value in _values(graph):
        size = _size(value)
        key = frozenset(size.dims.items())
        if key not in best or best[key].bytes < size.bytes:
            best[key] = size
    sizes = [size for size in best.values() if size.dims or size.bytes > _HARMLESS]
    return tuple(size.value for size in sizes if not any(size.within(other) for other in sizes if other is not size))


def _values(graph: Graph) -> Iterator[Value]:
    yield from graph.inputs
    for node in graph.nodes:
        yield from node.inputs
        yield from node.outputs


def _size(value: Value) -> _Size:
    total = value.dtype.size
    dims: Counter[Dim] = Counter()
    for dim in value.shape:
        if is_static(dim):
            total *= max(dim, 1)
        else:
            dims[dim] += 1
    return _Size(value, total, dims)
