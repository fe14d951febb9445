"""What whole numbers an input may hold: indices stay inside their tables, codes are those that the graph asks for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import onnx_ir as ir

from ortisan.checks.samples.shapes import constant, dims_of, free_symbols, input_at

_SAME_ELEMENTS = frozenset(
    {"Cast", "Expand", "Flatten", "Identity", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose"}
    | {"Unsqueeze", "Gather", "GatherElements", "GatherND", "Floor", "Round", "ReverseSequence", "Compress"}
)
"""Ops whose outputs have elements of their first input."""
_TABLES = {
    ("Gather", 1): 0,
    ("GatherElements", 1): 0,
    ("GatherND", 1): 0,
    ("ScatterElements", 1): 0,
    ("ScatterND", 1): 0,
    ("Scatter", 1): 0,
    ("EmbedLayerNormalization", 0): 2,
    ("EmbedLayerNormalization", 1): 4,
    ("ArrayFeatureExtractor", 1): 0,
}
"""(op, input that holds indices) -> input that holds the table."""
_BOUNDING = frozenset({"Clip", "Mod", "Min"})
"""Ops after which any number will do."""
_MOST_STEPS = 400
_MOST_CODES = 16

Rows = int | ir.SymbolicDim


@dataclass(frozen=True)
class Affine:
    """What became of an element on its way: scale * element + shift."""

    scale: Fraction = Fraction(1)
    shift: Fraction = Fraction(0)

    def after(self, node: ir.Node, index: int) -> Affine | None:
        """The map behind an arithmetic node with a constant; None when the node is something else."""
        other = constant(input_at(node, 1 - index)) if node.op_type in ("Add", "Sub", "Mul", "Div") else None
        if other is None or other.size == 0 or other.min() != other.max() or not math.isfinite(float(other.min())):
            return None
        number = Fraction(float(other.min()))
        if node.op_type == "Add":
            return Affine(self.scale, self.shift + number)
        if node.op_type == "Sub" and index == 0:
            return Affine(self.scale, self.shift - number)
        if node.op_type == "Mul" and number > 0:
            return Affine(self.scale * number, self.shift * number)
        if node.op_type == "Div" and index == 0 and number > 0:
            return Affine(self.scale / number, self.shift / number)
        return None

    def range_for(self, rows: int) -> tuple[int, int]:
        """The smallest and the largest whole number that lands in 0 .. rows - 1."""
        low = math.ceil(-self.shift / self.scale)
        return low, max(low, math.floor((rows - 1 - self.shift) / self.scale))


@dataclass(frozen=True)
class Indices:
    """The tables that an input points into, with what happens to it before; the numbers it is compared with."""

    tables: tuple[tuple[Rows | None, Affine], ...]
    codes: tuple[float, ...]
    counts: tuple[Rows | None, ...] = ()
    """The lengths that the input selects a number of elements from: `k` of TopK."""

    @property
    def is_known(self) -> bool:
        """Whether the number of rows of each table is."""
        return all(rows is not None for rows, _ in self.tables) and all(rows is not None for rows in self.counts)


def find_indices(value: ir.Value) -> Indices:
    """Follows the elements of a graph input to the nodes that take them for indices or compare them."""
    tables: list[tuple[Rows | None, Affine]] = []
    codes: list[float] = []
    counts: list[Rows | None] = []
    for node, index, way in _walk(value):
        table = _TABLES.get((node.op_type, index))
        if table is not None:
            tables.append((_rows(node, table), way))
        elif node.op_type == "OneHot" and index == 0:
            depth = constant(input_at(node, 1))
            tables.append((int(depth.reshape(-1)[0]) if depth is not None and depth.size else None, way))
        elif node.op_type == "TopK" and index == 1:
            counts.append(_dim(node.inputs[0], node.attributes.get_int("axis", -1)))
        elif node.op_type == "Equal" and (other := constant(input_at(node, 1 - index))) is not None:
            found = (way_back(way, float(number)) for number in other.reshape(-1)[:_MOST_CODES])
            codes.extend(number for number in found if number is not None)
    return Indices(tuple(tables), tuple(dict.fromkeys(codes)), tuple(counts))


def way_back(way: Affine, number: float) -> float | None:
    """The element that becomes this number, if a whole one does."""
    if not math.isfinite(number):
        return None
    element = (Fraction(number) - way.shift) / way.scale
    return float(element) if element.denominator == 1 else None


def _walk(value: ir.Value) -> Iterator[tuple[ir.Node, int, Affine]]:
    pending, seen = [(value, Affine())], {value}
    steps = 0
    while pending and steps < _MOST_STEPS:
        current, way = pending.pop()
        for use in current.uses():
            steps += 1
            node, index = use.node, use.idx
            yield node, index, way
            if node.op_type in _BOUNDING:
                continue
            if (node.op_type in _SAME_ELEMENTS and index == 0) or node.op_type in ("Concat", "Max"):
                onward: Affine | None = way
            elif node.op_type == "Where":
                onward = way if index > 0 else None
            else:
                onward = way.after(node, index)
            if onward is not None:
                for output in node.outputs:
                    if output not in seen:
                        seen.add(output)
                        pending.append((output, onward))


def _rows(node: ir.Node, table: int) -> Rows | None:
    data = input_at(node, table)
    if node.op_type == "ArrayFeatureExtractor":
        return _dim(data, -1)
    if node.op_type in ("GatherND", "ScatterND"):
        dims, indexed = dims_of(data), dims_of(input_at(node, 1))
        depth = indexed[-1] if indexed else None
        first = node.attributes.get_int("batch_dims", 0)
        if dims is None or depth is None or not 0 <= first <= first + depth <= len(dims):
            return None
        known = [dim for dim in dims[first : first + depth] if dim is not None]
        return min(known) if len(known) == depth and known else None
    return _dim(data, node.attributes.get_int("axis", 0))


def _dim(value: ir.Value | None, axis: int) -> Rows | None:
    """A dim that is a number or has a known name."""
    if value is None or value.shape is None or not -value.shape.rank() <= axis < value.shape.rank():
        return None
    dim = value.shape[axis]
    return dim if isinstance(dim, int) or free_symbols(dim) else None
