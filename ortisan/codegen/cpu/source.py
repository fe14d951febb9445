"""Kernel plan -> C++ source of one graph, and of the file that holds several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ortisan.codegen.cpu.kernel import Argument, KernelSpec, Param, Template
from ortisan.codegen.cpu.kernels import kernel_of, scalar_call
from ortisan.codegen.cpu.plan import GraphPlan
from ortisan.codegen.cpu.weight_use import is_thin, looked_up
from ortisan.codegen.render import render
from ortisan.codegen.tables import GraphTables, WeightRow, describe_graph
from ortisan.registry.scalars import Scalar


@dataclass(frozen=True)
class Pointer:
    kind: str
    index: int
    type: str


@dataclass(frozen=True)
class Call:
    kernel: str
    arguments: tuple[Pointer, ...]
    can_fail: bool


@dataclass(frozen=True)
class GraphSource:
    index: int
    graph: GraphTables
    kernels: tuple[str, ...]
    messages: tuple[str, ...]
    slots: tuple[str, ...]
    calls: tuple[Call, ...]
    thin: bool


def render_graph(plan: GraphPlan, index: int, op: str) -> str:
    functions, calls = _kernels(plan)
    source = GraphSource(
        index,
        describe_graph(plan.graph, op, plan.printer, _weights(plan), plan.memory.shared),
        tuple(functions),
        plan.messages,
        tuple(_largest(plan.printer.all(slot.sizes)) for slot in plan.memory.slots),
        tuple(calls),
        is_thin(plan),
    )
    return render("cpu/base/graph.cpp.j2", source)


def _weights(plan: GraphPlan) -> tuple[WeightRow, ...]:
    rows = zip(plan.weight_names(), plan.weights, plan.packed_sizes(), strict=True)
    tables = looked_up(plan)
    return tuple(
        WeightRow(name, weight.value.dtype.onnx, size, index in tables)
        for index, (name, weight, size) in enumerate(rows)
    )


def _largest(sizes: Sequence[str]) -> str:
    first, *rest = sizes
    return f"max_dim({first}, {_largest(rest)})" if rest else f"int64_t({first})"


def _kernels(plan: GraphPlan) -> tuple[list[str], list[Call]]:
    """The distinct kernel functions, and the calls in order."""
    functions: list[str] = []
    names: dict[tuple[Template, object], str] = {}
    calls: list[Call] = []
    for position, kernel in enumerate(plan.kernels):
        key = (kernel.template, kernel.context)
        if key not in names:
            names[key] = f"{_identifier(kernel.name)}_{len(names)}"
            functions.append(render(kernel.template.path, kernel.context, name=names[key]))
        pointers = zip(kernel.arguments, kernel.context.params, strict=True)
        arguments = tuple(_pointer(argument, param, plan, position) for argument, param in pointers)
        calls.append(Call(names[key], arguments, any(a.kind == "message" for a in kernel.arguments)))
    return functions, calls


def _identifier(name: str) -> str:
    return name.replace(".", "_")[:60]


def _pointer(argument: Argument, param: Param, plan: GraphPlan, position: int) -> Pointer:
    if argument.kind in ("weight", "message", "output"):
        return Pointer(argument.kind, argument.index, param.type)
    if argument.kind == "workspace":
        return Pointer("scratch", plan.memory.workspaces[plan.groups[position]], param.type)
    if argument.value is None:
        raise TypeError("a value argument has no value")
    place = plan.memory.places[argument.value]
    return Pointer(place.kind, place.index, param.type)


@dataclass(frozen=True)
class FileSource:
    headers: tuple[str, ...]
    snippets: tuple[Scalar, ...]
    graphs: tuple[str, ...]


def render_file(plans: Sequence[GraphPlan], first_index: int, ops: Sequence[str]) -> str:
    """One source file with several graphs."""
    kernels: list[KernelSpec] = [kernel for plan in plans for kernel in plan.kernels]
    used = {header for kernel in kernels for header in kernel.template.headers}
    graphs = tuple(render_graph(plan, first_index + i, ops[i]) for i, plan in enumerate(plans))
    headers = tuple(sorted({"execution.h", "pieces.h", "types.h", *used}))
    return render("cpu/base/graphs.cpp.j2", FileSource(headers, _snippets(plans), graphs))


def _snippets(plans: Sequence[GraphPlan]) -> tuple[Scalar, ...]:
    """The scalar functions that callers brought along, each once."""
    nodes = [node for plan in plans for node in plan.graph.nodes if kernel_of(node).elementwise]
    rows = {row.name: row for node in nodes if (row := scalar_call(node).snippet) is not None}
    return tuple(rows[name] for name in sorted(rows))
