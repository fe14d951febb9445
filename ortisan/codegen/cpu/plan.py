"""The kernel plan of one op graph: groups, the kernel of each, the weights as they are read, and where values live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ortisan.codegen.cpu.fuse import Group, fuse, loops
from ortisan.codegen.cpu.joined import joined_caches
from ortisan.codegen.cpu.kernel import Argument, EmitContext, KernelSpec, Param, Weight
from ortisan.codegen.cpu.kernels import emit
from ortisan.codegen.cpu.kernels.move import Box, CopyContext, bits
from ortisan.codegen.cpu.memory import Copy, MemoryPlan, plan_memory
from ortisan.codegen.cpu.packing import pack, packed_bytes
from ortisan.codegen.cpu.tune.blocking import BlockingTable, Product, table
from ortisan.codegen.cpu.views import Views
from ortisan.codegen.expressions import DimPrinter
from ortisan.registry.dims import product
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
    graph: Graph, keep_all: bool = False, blocking_table: Callable[[Product], BlockingTable] = table
) -> GraphPlan:
    """With `keep_all`, every value stays in memory to the end of a run, for debugging.

    `blocking_table` chooses the blockings of products.
    """
    verify_graph(graph)
    # What joins a product is settled first, so that nothing leaves it to read through strides.
    views = Views(graph, loops(graph, Views(graph)))
    groups = fuse(graph, views)
    context = EmitContext(
        DimPrinter(graph.symbols), views, graph.bounds, blocking_table, joined=joined_caches(graph, views)
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
    return GraphPlan(graph, groups, tuple(kernels), weights, messages, memory, views, printer, products)


def _copy(copy: Copy, graph: Graph, context: EmitContext) -> KernelSpec:
    """Copies an output that is an input, a constant or another output."""
    value = graph.outputs[copy.output]
    type_ = bits(value.dtype)
    count = context.printer(product(value.shape))
    box = Box("in0", "out0", (count,), "0", ("1",), "0", ("1",))
    body = CopyContext((Param("in0", type_), Param("out0", type_, written=True)), type_, (box,))
    return KernelSpec(
        "cpu/copy.cpp.j2", "copy", body, (context.read(copy.source), Argument("output", None, copy.output))
    )
