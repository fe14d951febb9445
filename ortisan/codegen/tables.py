"""The tables that describe a graph to its callers at run time: tensors, symbols, guards, dim expressions.

They are what templates/graph/graph.h declares, and the same for every target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ortisan.codegen.expressions import DimPrinter
from ortisan.codegen.largest import largest_values
from ortisan.registry.dims import Dim, is_static
from ortisan.registry.graph import Graph, Value

_INT64_MAX = "std::numeric_limits<int64_t>::max()"


@dataclass(frozen=True)
class DimRef:
    kind: str
    value: int


@dataclass(frozen=True)
class TensorRow:
    index: int
    name: str
    dtype: int
    dims: tuple[DimRef, ...]


@dataclass(frozen=True)
class WeightRow:
    name: str
    dtype: int
    bytes: int
    looked_up: bool


@dataclass(frozen=True)
class SymbolRow:
    name: str
    low: int
    high: str


@dataclass(frozen=True)
class GuardRow:
    kind: str
    a: DimRef
    b: DimRef
    where: str


@dataclass(frozen=True)
class GraphTables:
    op: str
    inputs: tuple[TensorRow, ...]
    outputs: tuple[TensorRow, ...]
    values: tuple[TensorRow, ...]
    """The largest of all values: for any sizes of the symbols, none has more bytes than one of these."""
    weights: tuple[WeightRow, ...]
    symbols: tuple[SymbolRow, ...]
    guards: tuple[GuardRow, ...]
    expressions: tuple[str, ...]
    shared: tuple[tuple[int, int], ...]
    """Inputs and outputs, pair by pair, that may be the same memory."""


@dataclass(frozen=True)
class LibrarySource:
    """How many graphs a library has, and the domain of their custom ops."""

    graphs: int
    domain: str


@dataclass(eq=False)
class _Expressions:
    """The dims that are neither numbers nor symbols, numbered as they are met."""

    printer: DimPrinter
    printed: dict[str, int] = field(default_factory=dict)

    def ref(self, dim: Dim) -> DimRef:
        if is_static(dim):
            return DimRef("fixed", int(dim))
        if dim.is_Symbol:
            return DimRef("symbol", self.printer.index[dim.name])
        text = self.printer(dim)
        return DimRef("expression", self.printed.setdefault(text, len(self.printed)))


def describe_graph(
    graph: Graph,
    op: str,
    printer: DimPrinter,
    weights: Sequence[WeightRow],
    shared: Sequence[tuple[int, int]] = (),
) -> GraphTables:
    """`op` is the custom op's name, `weights` follow the graph's inputs as inputs of its node."""
    expressions, limits = _Expressions(printer), graph.bounds
    inputs = tuple(_tensor(i, value.name, value, expressions) for i, value in enumerate(graph.inputs))
    outputs = tuple(_tensor(i, graph.output_names[i], value, expressions) for i, value in enumerate(graph.outputs))
    values = tuple(_tensor(i, value.name, value, expressions) for i, value in enumerate(largest_values(graph)))
    symbols = tuple(
        SymbolRow(name, limits.get(name, (0, 0))[0], str(limits[name][1]) if name in limits else _INT64_MAX)
        for name in graph.symbols
    )
    guards = tuple(
        GuardRow(guard.kind, expressions.ref(guard.a), expressions.ref(guard.b), guard.where) for guard in graph.guards
    )
    printed = tuple(expressions.printed)
    return GraphTables(op, inputs, outputs, values, tuple(weights), symbols, guards, printed, tuple(shared))


def _tensor(index: int, name: str, value: Value, expressions: _Expressions) -> TensorRow:
    return TensorRow(index, name, value.dtype.onnx, tuple(expressions.ref(dim) for dim in value.shape))
