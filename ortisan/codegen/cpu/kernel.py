"""What the emitters hand over: a template, the frozen context it is rendered with, and the arguments of the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.packing import Layout
from ortisan.codegen.cpu.tune.blocking import DEFAULT, BlockingTable, BlockingUpTo, Product, table
from ortisan.codegen.cpu.views import Views
from ortisan.codegen.expressions import DimPrinter
from ortisan.registry.builder import is_constant
from ortisan.registry.dims import Dim, Shape, bounds_of, is_static
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Op, TensorType, Value
from ortisan.registry.scalars import Scalar

_Op = TypeVar("_Op", bound=Op)


@dataclass(frozen=True)
class Param:
    """A pointer parameter of a kernel function."""

    name: str
    type: str
    written: bool = False


@dataclass(frozen=True, eq=False)
class Argument:
    """What is passed for a parameter: a value's memory, a weight, the group's workspace, or a message."""

    kind: Literal["value", "weight", "workspace", "message", "output"]
    value: Value | None = None
    index: int = 0


@dataclass(frozen=True)
class Template:
    """What is rendered to one function, named by folder and file in templates/cpu/, and the headers it needs."""

    name: str
    headers: tuple[str, ...] = ()
    instance: str = ""
    """A template of templates/cpu/ that instantiates what the kernel calls for the `type` of its context.

    For functions that take long to compile and know nothing of the graph but the type.
    """

    @property
    def path(self) -> str:
        return f"cpu/{self.name}.cpp.j2"


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """One kernel call. Equal `template` and `context` render to the same function."""

    template: Template
    name: str
    context: Any
    arguments: tuple[Argument, ...]
    workspace: Dim | None = None


@dataclass(frozen=True, eq=False)
class Weight:
    """A constant as the kernels read it."""

    value: Value
    layout: Layout


@dataclass(frozen=True)
class ScalarCall:
    """What a loop calls for one elementwise node: `fn::function(operands, params)`, or a cast to the type `to`."""

    function: str
    params: tuple[str, ...] = ()
    to: str = ""
    expensive: bool = False
    fast_path: bool = False
    """Whether a loop runs a faster version first, and the whole function where an argument asks for it."""
    discontinuous: bool = False
    """Whether it needs its operands as they are stored."""
    snippet: Scalar | None = None
    """The row of a function whose C++ the caller brought along."""


@dataclass(frozen=True, eq=False)
class AppendedCache:
    """present = concatenate(past, new rows), which attentions read and no other kernel does."""

    past: Value
    sizes: tuple[tuple[Dim, Dim], ...]
    """Of each attention the queries, and the query heads for each head of the cache."""


WeightKey: TypeAlias = tuple[Value, Layout]


@dataclass(eq=False)
class EmitContext:
    """What emitters share for one graph: the dim printer, the views, and the tables they add to."""

    printer: DimPrinter
    views: Views
    scalar_call: Callable[[Node], ScalarCall]
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of the symbols that have any."""
    blocking_table: Callable[[Product], BlockingTable] = table
    products: dict[Product, None] = field(default_factory=dict)
    """The distinct products that can be tuned, in the order they are met."""
    weights: dict[WeightKey, int] = field(default_factory=dict)
    constants: dict[tuple[Value, Shape], Value] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)
    appended: Mapping[Value, AppendedCache] = field(default_factory=dict)
    """By the present."""
    winograd: bool = True
    """Whether convolutions may be computed by Winograd's algorithm."""

    def read(self, value: Value) -> Argument:
        """The memory a value is read from."""
        root = self.views.root(value)
        if is_constant(root):
            return self.weight(root, "plain")
        return Argument("value", root)

    def write(self, value: Value) -> Argument:
        return Argument("value", self.views.root(value))

    def weight(self, value: Value, layout: Layout) -> Argument:
        return Argument("weight", value, self.weights.setdefault((value, layout), len(self.weights)))

    def reshaped(self, value: Value, shape: Shape) -> Value:
        """A constant under another shape, one object however often it is asked for."""
        key = (value, shape)
        if key not in self.constants and value.data is not None:
            self.constants[key] = Value(value.name, TensorType(value.dtype, shape), value.data.reshape(shape))
        return self.constants[key]

    def blockings(
        self, dtype: DType, depth: Dim, columns: Sequence[Dim], rows: Dim, *, packed: bool = True
    ) -> BlockingTable:
        """How a product is blocked. `packed` when B is a weight; else it is packed in each run and not worth tuning."""
        sizes = (depth, *columns)
        if not all(is_static(size) and size > 0 for size in sizes):
            return (BlockingUpTo(None, DEFAULT),)
        product = Product(dtype, depth, tuple(columns), *bounds_of(rows, self.bounds))
        if not packed:
            return table(product)
        self.products[product] = None
        return self.blocking_table(product)

    def message(self, text: str) -> Argument:
        return Argument("message", None, self.messages.setdefault(text, len(self.messages)))


def only_node(group: Group, kind: type[_Op]) -> tuple[Node, _Op]:
    """The node of a group of one, and its op."""
    node = group.nodes[0]
    return node, op_of(node, kind)


def op_of(node: Node, kind: type[_Op]) -> _Op:
    """The op of a node, which must be of this class."""
    if not isinstance(node.op, kind):
        raise TypeError(f"{node.op.name} is not a {kind.__name__}")
    return node.op
