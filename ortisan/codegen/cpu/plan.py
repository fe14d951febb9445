"""The kernel plan of one op graph: groups, the kernel of each, the weights as they are read, and where values live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ortisan.codegen.backend import StoredWeight
from ortisan.codegen.cpu.find_views import find_views
from ortisan.codegen.cpu.fuse import fuse, loops
from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import Argument, EmitContext, KernelSpec, Weight
from ortisan.codegen.cpu.kernels import emit, scalar_call
from ortisan.codegen.cpu.kernels.cache import appended_caches
from ortisan.codegen.cpu.loops.boxes import copy_whole
from ortisan.codegen.cpu.memory import Copy, MemoryPlan, plan_memory
from ortisan.codegen.cpu.packing import pack, packed_bytes
from ortisan.codegen.cpu.scratch import in_bytes, largest_scratch, typical_scratch
from ortisan.codegen.cpu.tune.blocking import BlockingTable, Product, table
from ortisan.codegen.cpu.tune.choices import Tuning
from ortisan.codegen.cpu.views import Views
from ortisan.codegen.expressions import DimPrinter
from ortisan.registry.dtypes import Array
from ortisan.registry.graph import Graph
from ortisan.registry.verify import verify_graph


@dataclass(frozen=True, eq=False)
class GraphPlan:
    graph: Graph
    groups: tuple[Group, ...]
    kernels: tuple[KernelSpec, ...]
    """One per group, then one per output that has to be copied."""
    weights: tuple[Weight, ...]
    messages: tuple[str, ...]
    memory: MemoryPlan
    views: Views
    printer: DimPrinter
    products: tuple[Product, ...]
    """The distinct matrix products whose blockings can be tuned."""
    tables: tuple[BlockingTable, ...]
    """The blockings of each of them."""
    tuning: Tuning | None = None
    """Who chose them; None when nobody was asked."""
    winograd: bool = True
    """Whether Winograd's algorithm was allowed."""

    @property
    def shared(self) -> tuple[tuple[int, int], ...]:
        return self.memory.shared

    def stored_weights(self) -> list[StoredWeight]:
        rows = zip(self.weight_names(), self.weights, self.packed_sizes(), strict=True)
        return [_stored(name, weight, size) for name, weight, size in rows]

    def digest(self) -> str:
        return "\n".join([*map(str, self.tables), *([] if self.winograd else ["winograd=False"])])

    def describe(self) -> dict[str, Any]:
        largest = largest_scratch(self)
        return {
            "kernels": len(self.kernels),
            "weight_bytes": sum(self.packed_sizes()),
            "scratch": {
                "typical": asdict(typical_scratch(self)),
                "at_upper_bounds": asdict(largest) if largest else None,
            },
        }

    def lines(self) -> list[tuple[str, str, str]]:
        typical, largest = typical_scratch(self), largest_scratch(self)
        found = [typical] if largest in (None, typical) else [typical, largest]
        return [("scratch", in_bytes(each.bytes), each.where()) for each in found if each is not None]

    def packed_weights(self) -> list[Array]:
        return [pack(weight.value.data, weight.layout) for weight in self.weights if weight.value.data is not None]

    def packed_sizes(self) -> list[int]:
        """Bytes of each weight, without packing it."""
        return [packed_bytes(weight.value.type.shape, weight.value.dtype, weight.layout) for weight in self.weights]

    def weight_names(self) -> list[str]:
        """Unique names: the constant's own where it has one, and the layout when it is not the constant's own."""
        names: list[str] = []
        for index, weight in enumerate(self.weights):
            name = weight.value.name if weight.layout == "plain" else f"{weight.value.name}/{weight.layout}"
            names.append(f"{name}/{index}" if name in names else name)
        return names


def plan_graph(
    graph: Graph,
    *,
    keep_all: bool = False,
    blocking_table: Callable[[Product], BlockingTable] = table,
    winograd: bool = True,
) -> GraphPlan:
    """With `keep_all`, every value stays in memory to the end of a run, for debugging.

    `blocking_table` chooses the blockings of products. `winograd` allows Winograd's algorithm for convolutions.
    """
    verify_graph(graph)
    # What joins a product is settled first, so that nothing leaves it to read through strides.
    views = find_views(graph, loops(graph, find_views(graph)))
    groups = fuse(graph, views, keep_all=keep_all)
    context = EmitContext(
        DimPrinter(graph.symbols),
        views,
        scalar_call,
        graph.bounds,
        blocking_table,
        appended=appended_caches(graph, views),
        winograd=winograd,
    )
    kernels = [emit(group, context) for group in groups]
    workspace = {
        group: kernel.workspace for group, kernel in zip(groups, kernels, strict=True) if kernel.workspace is not None
    }
    memory = plan_memory(graph, groups, views, workspace, keep_all)
    kernels += [_copy(copy, graph, context) for copy in memory.copies]
    weights = tuple(Weight(value, layout) for value, layout in context.weights)
    messages = tuple(context.messages)
    printer, products = context.printer, tuple(context.products)
    tables = tuple(map(blocking_table, products))
    return GraphPlan(
        graph, groups, tuple(kernels), weights, messages, memory, views, printer, products, tables, winograd=winograd
    )


def _stored(name: str, weight: Weight, size: int) -> StoredWeight:
    value, layout = weight.value, weight.layout
    data = value.data
    if data is None:
        raise TypeError(f"'{value.name}' is a weight without data")
    shape = (data.shape or (1,)) if layout == "plain" else (size // value.dtype.size,)
    return StoredWeight(name, value.dtype, shape, lambda: pack(data, layout))


def _copy(copy: Copy, graph: Graph, context: EmitContext) -> KernelSpec:
    """Copies an output that is an input, a constant or another output."""
    arguments = (context.read(copy.source), Argument("output", None, copy.output))
    return copy_whole("copy", graph.outputs[copy.output], context, arguments)
