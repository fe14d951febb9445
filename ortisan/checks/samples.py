"""Sample inputs for a model: sizes for its symbolic dims, and values that make sense to the graph.

Floats are standard normal. Whole numbers that end up as indices stay inside their table; masks are 0 or 1 with padding
on the right; other whole numbers and booleans are 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ortisan.converter.passes import cleanup
from ortisan.converter.read.load import load_model
from ortisan.converter.read.symbols import Bounds, ascending, fix_dims, name_symbols
from ortisan.errors import UnsupportedError
from ortisan.registry.dtypes import Array

_LEADING = (1, 2, 3, 1)
"""Sizes of a batch, case by case."""
_OTHERS = ((1, 1, 1, 1), (7, 11, 5, 13), (17, 3, 29, 19), (67, 31, 37, 41))
"""Sizes of the other dims, case by case; adjacent dims differ."""
_TIMED_SIZE = 128

_SHAPE_ONLY = frozenset(
    {"Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
"""Ops whose first output has the elements of their first input."""
_INDEXING = {
    ("Gather", 1): 0,
    ("GatherElements", 1): 0,
    ("EmbedLayerNormalization", 0): 2,
    ("EmbedLayerNormalization", 1): 4,
}
"""(op, input that holds indices) -> input that holds the table."""
_LARGEST_INDEX = 1 << 20


@dataclass(frozen=True, eq=False)
class Case:
    """One set of inputs, with a label for reports."""

    label: str
    feeds: Mapping[str, Array]
    given: bool = False
    """Whether the caller supplied them, in which case a failing run is an error."""


class Sampler:
    """Makes inputs for one model. `dims` fixes or bounds symbolic dims, as in `compile`."""

    def __init__(self, model: object, dims: Bounds | None = None) -> None:
        loaded = load_model(model)  # type: ignore[arg-type]
        cleanup.inline_functions(loaded)
        originals = name_symbols(loaded)
        bounds = dict(dims or {})
        fix_dims(loaded, bounds, originals)
        self.inputs = [value for value in loaded.graph.inputs if not value.is_initializer()]
        self.originals = originals
        clean = {original: name for name, original in originals.items()}
        self._bounds = {clean.get(key, key): bound for key, bound in bounds.items() if isinstance(bound, tuple)}
        self._rows = {value: _index_limit(value) for value in self.inputs}
        self.symbols = _symbols(self.inputs)
        self._leading = _leading(self.inputs)
        self._ascending = ascending(loaded)
        self._growth = _Growth.of(loaded.graph, self.inputs, self._leading)

    @property
    def has_mask(self) -> bool:
        return any(_is_mask(value) for value in self.inputs)

    def cases(self) -> Iterator[Iterator[Case]]:
        """Yields, for each case, the inputs to try in order; the first that the model accepts represents the case."""
        for number in range(len(_LEADING) if self.symbols else 1):
            sizes = self._sizes(number)
            padded = self.has_mask and number % 2 == 1
            yield self._attempts(sizes, padded, number)
        if self.has_mask:
            sizes = self._sizes(2) if self.symbols else {}
            yield self._attempts(sizes, True, len(_LEADING))

    def timed(self) -> Iterator[Case]:
        """Yields inputs of a size worth timing, then smaller ones. A decoder with a cache gets a single step."""
        single = {*self._leading, *self._ascending[:1], *self._growth.new}
        sizes = {name: self._clamp(name, 1 if name in single else _TIMED_SIZE) for name in self.symbols}
        return self._attempts(sizes, False, 0)

    def _attempts(self, sizes: Mapping[str, int], padded: bool, seed: int) -> Iterator[Case]:
        grown = map(self._growth.applied, self._shrunk(sizes))
        return (self.case(smaller, padded=padded, seed=seed) for smaller in grown)

    def case(self, sizes: Mapping[str, int], *, padded: bool, seed: int) -> Case:
        rng = np.random.default_rng(seed)
        feeds = {value.name or "": self._draw(value, sizes, padded, rng) for value in self.inputs}
        label = ", ".join(f"{self.originals.get(name, name)}={size}" for name, size in sizes.items()) or "as declared"
        return Case(label + (", padded" if padded else ""), feeds)

    def _sizes(self, number: int) -> dict[str, int]:
        others = [name for name in self.symbols if name not in self._leading] or list(self.symbols)
        row = _OTHERS[number]
        sizes = dict.fromkeys(self._leading, _LEADING[number])
        sizes |= {name: row[index % len(row)] for index, name in enumerate(others)}
        sizes |= self._ordered(sizes)
        return {name: self._clamp(name, sizes[name]) for name in self.symbols}

    def _ordered(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes of dims that the model requires in ascending order."""
        names = [name for name in self._ascending if name in sizes]
        return dict(zip(names, sorted(sizes[name] for name in names), strict=True))

    def _clamp(self, name: str, size: int) -> int:
        low, high = self._bounds.get(name, (0, size))
        return min(max(size, low), high)

    def _shrunk(self, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Yields the sizes, then halves down to the minimum, then equal sizes: unnamed dims may have to agree."""
        current = dict(sizes)
        yield current
        while any(size > self._clamp(name, 1) for name, size in current.items()):
            current = {name: self._clamp(name, max(1, size // 2)) for name, size in current.items()}
            yield current
        if len(sizes) > 1:
            for size in (4, 2, 1):
                yield {name: self._clamp(name, size) for name in sizes}

    def _draw(self, value: ir.Value, sizes: Mapping[str, int], padded: bool, rng: np.random.Generator) -> Array:
        if value.dtype is None or value.shape is None or not isinstance(value.type, ir.TensorType):
            raise UnsupportedError(
                f"no sample can be generated for input '{value.name}' of type {value.type}; pass the inputs"
            )
        shape = tuple(_extent(dim, sizes) for dim in value.shape)
        if value.dtype == ir.DataType.STRING:
            return np.full(shape, "text", dtype=object)
        dtype = value.dtype.numpy()
        if _is_mask(value):
            return _mask(shape, padded, rng).astype(dtype)
        if value.dtype.is_floating_point():
            return np.asarray(rng.standard_normal(shape)).astype(dtype)
        limit = self._rows[value]
        high = 2 if limit is None else max(1, min(_extent(limit, sizes), _LARGEST_INDEX))
        return np.asarray(rng.integers(0, high, shape)).astype(dtype)


@dataclass(frozen=True)
class _Growth:
    """The symbols of a decoder with growing caches: its past, new and total lengths are related."""

    past: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()
    total: frozenset[str] = frozenset()

    @classmethod
    def of(cls, graph: ir.Graph, inputs: Sequence[ir.Value], leading: frozenset[str]) -> _Growth:
        """Finds the caches: inputs that are concatenated with new values into an output."""
        past: set[str] = set()
        for output in graph.outputs:
            node = output.producer()
            cache = node.inputs[0] if node is not None and node.op_type == "Concat" and node.inputs else None
            if node is not None and cache in inputs and cache is not None and cache.shape is not None:
                past |= _free(cache.shape[node.attributes.get_int("axis", 0)])
        if not past:
            return cls()
        ends = [
            value.shape[-1] for value in inputs if _is_mask(value) and value.shape is not None and value.shape.rank()
        ]
        total = frozenset(
            name for dim in ends if isinstance(dim, ir.SymbolicDim) and len(_free(dim)) == 1 for name in _free(dim)
        )
        new = frozenset(_symbols(inputs)) - past - total - leading
        return cls(frozenset(past), new, total - past - new - leading)

    def applied(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes with one past length for all caches, and the total set to past + new (one new position if no dim
        says).
        """
        if not self.past or not self.past <= sizes.keys():
            return dict(sizes)
        past = sizes[min(self.past)]
        new = sizes[min(self.new)] if self.new else 1
        return {**sizes, **dict.fromkeys(self.past, past), **dict.fromkeys(self.total, past + new)}


def _symbols(inputs: Sequence[ir.Value]) -> tuple[str, ...]:
    names = {name: None for value in inputs for dim in value.shape or () for name in sorted(_free(dim))}
    return tuple(names)


def _leading(inputs: Sequence[ir.Value]) -> frozenset[str]:
    """Symbols that look like a batch: they come first in an input of several dims."""
    first = (value.shape[0] for value in inputs if value.shape is not None and value.shape.rank() > 1)
    return frozenset(name for dim in first for name in _free(dim))


def _free(dim: int | ir.SymbolicDim) -> frozenset[str]:
    return dim.free_symbols() if isinstance(dim, ir.SymbolicDim) and dim.value is not None else frozenset()


def _extent(dim: int | ir.SymbolicDim, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    if not _free(dim) <= sizes.keys():
        return 1
    return max(0, int(dim.evaluate(dict(sizes))))  # type: ignore[arg-type]  # every symbol has a number


def _is_mask(value: ir.Value) -> bool:
    return "mask" in (value.name or "").lower()


def _mask(shape: tuple[int, ...], padded: bool, rng: np.random.Generator) -> Array:
    """Ones; with padding, every row but the first ends in zeros (a single row loses its last third)."""
    if not padded or not shape:
        return np.ones(shape, np.int64)
    length = shape[-1]
    seen = rng.integers(1, length + 1, shape[:-1]) if length else np.zeros(shape[:-1], np.int64)
    seen = np.asarray(seen)
    if seen.size == 1:
        seen = np.full_like(seen, max(1, length - length // 3))
    else:
        seen.reshape(-1)[:1] = length
    return (np.arange(length) < seen[..., None]).astype(np.int64)


def _index_limit(value: ir.Value) -> int | ir.SymbolicDim | None:
    """The number of rows of the smallest table that a graph input indexes, directly or under another shape."""
    limits: list[int | ir.SymbolicDim] = []
    pending, seen = [value], {value}
    while pending:
        for use in pending.pop().uses():
            table = _INDEXING.get((use.node.op_type, use.idx))
            if table is not None and (rows := _rows(use.node, table)) is not None:
                limits.append(rows)
            elif use.idx == 0 and use.node.op_type in _SHAPE_ONLY and use.node.outputs[0] not in seen:
                seen.add(use.node.outputs[0])
                pending.append(use.node.outputs[0])
    numbers = [limit for limit in limits if isinstance(limit, int)]
    return min(numbers) if numbers else next(iter(limits), None)


def _rows(node: ir.Node, table: int) -> int | ir.SymbolicDim | None:
    data = node.inputs[table] if table < len(node.inputs) else None
    if data is None or data.shape is None or data.shape.rank() == 0:
        return None
    return data.shape[node.attributes.get_int("axis", 0)]
