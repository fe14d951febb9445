"""Follows a value back through functions and moves to what is in memory, and writes the chain that computes it.

Where an element of an operand is read is affine in the indices of the loop. Broadcasting, expansions, permutes, slices,
splits, and reshapes that add or drop dims of 1 change that, and nothing else; an arange is such an address itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from ortisan.codegen.ait.chain import Chain, Leaf, Literal, Step
from ortisan.registry.builder import is_constant
from ortisan.registry.dims import Dim, product, settle
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Value
from ortisan.registry.ops import Arange, Cast, DynamicSlice, Elementwise, Expand, Full, Permute, Reshape, Size, Split

COMPUTED = (Elementwise, Cast)
MOVED = (Expand, Permute, DynamicSlice, Split)
MADE = (Arange, Full, Size)


def write_chain(values: Sequence[Value], chained: Mapping[Value, Node], ends: Set[Value]) -> tuple[Chain, list[Value]]:
    """The chain of values of one shape, and what it reads: all but `chained` values, and the `ends` among those."""
    shape = values[0].shape
    writer = _ChainWriter(
        {value: node for value, node in chained.items() if value not in ends or value in values}, shape
    )
    start = tuple(Index.of(axis, shape) for axis in range(len(shape)))
    roots = [writer.number(value, start) for value in values]
    return writer.chain(roots), writer.operands


@dataclass(frozen=True)
class Index:
    """offset + sum(factors * the loop's indices)."""

    offset: Dim
    factors: tuple[Dim, ...]

    @classmethod
    def of(cls, axis: int, shape: Sequence[Dim]) -> Index:
        return cls(0, tuple(int(axis == other and dim != 1) for other, dim in enumerate(shape)))

    def __mul__(self, factor: Dim) -> Index:
        return Index(settle(self.offset * factor), tuple(settle(f * factor) for f in self.factors))

    def __add__(self, other: Index) -> Index:
        factors = tuple(settle(a + b) for a, b in zip(self.factors, other.factors, strict=True))
        return Index(settle(self.offset + other.offset), factors)

    def moved(self, offset: Dim) -> Index:
        return Index(settle(self.offset + offset), self.factors)


@dataclass
class _ChainWriter:
    """Follows values back to what is in memory, and numbers what it meets."""

    chained: Mapping[Value, Node]
    shape: tuple[Dim, ...]
    operands: list[Value] = field(default_factory=list)
    made: list[Leaf | Literal | Step] = field(default_factory=list)
    known: dict[tuple[object, ...], int] = field(default_factory=dict)

    @property
    def nothing(self) -> Index:
        return Index(0, (0,) * len(self.shape))

    def number(self, value: Value, at: tuple[Index, ...]) -> int:
        key = (value, at)
        if key not in self.known:
            self.known[key] = self._number(value, at)
        return self.known[key]

    def _number(self, value: Value, at: tuple[Index, ...]) -> int:
        if is_constant(value) and value.type.elements == 1:
            return self._constant(value)
        if value.data is not None and value.data.dtype == object and value.data.size == 1:
            return self._sized(value.data.reshape(-1)[0], value.dtype)
        node = self.chained.get(value)
        if node is None:
            return self._leaf(value, at)
        if isinstance(node.op, COMPUTED):
            operands = tuple(self.number(x, self._broadcast(x, node.output, at)) for x in node.inputs)
            return self._keep(Step(node.op, operands))
        if isinstance(node.op, Arange):
            (index,) = at
            return self._cast(self._keep_leaf(None, (index * node.op.step).moved(node.op.start)), node.op.dtype)
        if isinstance(node.op, Size):
            return self._sizes(node.op, at)
        if isinstance(node.op, Full):
            return self._keep(Literal(float(node.op.value), node.op.dtype))
        if isinstance(node.op, (*MOVED, Reshape)):
            return self.number(node.inputs[0], self._before(node, value, at))
        return self._leaf(value, at)

    def _constant(self, value: Value) -> int:
        assert value.data is not None
        number = value.data.reshape(()).item()
        if value.dtype.is_integer:
            return self._sized(int(number), value.dtype)
        return self._keep(Literal(float(number), value.dtype))

    def _sized(self, dim: Dim, dtype: DType) -> int:
        """A number that may depend on sizes: an address that is the same everywhere."""
        return self._cast(self._keep_leaf(None, self.nothing.moved(dim)), dtype)

    def _sizes(self, op: Size, at: tuple[Index, ...]) -> int:
        """A vector of sizes: the last one, unless the index is that of one before."""
        index = self._keep_leaf(None, at[0])
        chosen = self._sized(op.dims[-1], DType.INT64)
        for place, dim in reversed(list(enumerate(op.dims[:-1]))):
            here = self._keep(Step(Elementwise("EQ"), (index, self._sized(place, DType.INT64))))
            chosen = self._keep(Step(Elementwise("WHERE"), (here, self._sized(dim, DType.INT64), chosen)))
        return chosen

    def _cast(self, number: int, dtype: DType) -> int:
        return number if dtype is DType.INT64 else self._keep(Step(Cast(dtype), (number,)))

    def _leaf(self, value: Value, at: tuple[Index, ...]) -> int:
        place = self.nothing
        for axis, index in enumerate(at):
            if value.shape[axis] != 1:
                place = place + index * product(value.shape[axis + 1 :])
        if value not in self.operands:
            self.operands.append(value)
        return self._keep_leaf(self.operands.index(value), place)

    def _keep_leaf(self, operand: int | None, place: Index) -> int:
        return self._keep(Leaf(operand, place.offset, place.factors))

    def _keep(self, item: Leaf | Literal | Step) -> int:
        key = ("item", repr(item))
        if key not in self.known:
            self.known[key] = len(self.made)
            self.made.append(item)
        return self.known[key]

    def _broadcast(self, x: Value, y: Value, at: tuple[Index, ...]) -> tuple[Index, ...]:
        """Where an operand is read for an element of the result."""
        last = at[len(y.shape) - len(x.shape) :]
        return tuple(self.nothing if dim == 1 else index for dim, index in zip(x.shape, last, strict=True))

    def _before(self, node: Node, value: Value, at: tuple[Index, ...]) -> tuple[Index, ...]:
        """Where a move has an element from."""
        op, x = node.op, node.inputs[0]
        if isinstance(op, Permute):
            return tuple(at[op.order.index(axis)] for axis in range(len(x.shape)))
        if isinstance(op, DynamicSlice):
            steps = zip(at, op.starts, op.steps, strict=True)
            return tuple((index * step).moved(start) for index, start, step in steps)
        if isinstance(op, Split):
            start = settle(sum(op.sizes[: node.outputs.index(value)]))
            return tuple(index.moved(start) if axis == op.axis else index for axis, index in enumerate(at))
        if isinstance(op, Reshape):
            long = iter([index for dim, index in zip(value.shape, at, strict=True) if dim != 1])
            return tuple(self.nothing if dim == 1 else next(long) for dim in x.shape)
        return self._broadcast(x, value, at)

    def chain(self, roots: Sequence[int]) -> Chain:
        """Leaves first, then literals, then steps."""
        order = sorted(range(len(self.made)), key=lambda i: (_rank(self.made[i]), i))
        places = {old: new for new, old in enumerate(order)}
        made = [self.made[i] for i in order]
        leaves = tuple(item for item in made if isinstance(item, Leaf))
        literals = tuple(item for item in made if isinstance(item, Literal))
        steps = tuple(Step(i.op, tuple(places[o] for o in i.operands)) for i in made if isinstance(i, Step))
        return Chain(self.shape, leaves, literals, steps, tuple(places[root] for root in roots))


def _rank(item: Leaf | Literal | Step) -> int:
    return (Leaf, Literal, Step).index(type(item))
