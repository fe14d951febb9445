"""Kernel plan -> C++ source of one graph, and of the file that holds several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ortisan.codegen.cpu.functions import Function, Functions
from ortisan.codegen.cpu.kernel import Argument, Param
from ortisan.codegen.cpu.plan import GraphPlan
from ortisan.codegen.cpu.weight_use import is_thin, looked_up
from ortisan.codegen.render import render
from ortisan.codegen.tables import GraphTables, WeightRow, describe_graph
from ortisan.registry.dims import Dim, is_static
from ortisan.registry.graph import Value


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
    condition: int | None
    """Which condition must hold, or its outputs have no elements; None when they always have some."""


@dataclass(frozen=True)
class GraphSource:
    index: int
    graph: GraphTables
    messages: tuple[str, ...]
    slots: tuple[str, ...]
    conditions: tuple[str, ...]
    calls: tuple[Call, ...]
    thin: bool


def _render_graph(plan: GraphPlan, index: int, op: str, functions: Functions) -> str:
    conditions, calls = _calls(plan, functions)
    source = GraphSource(
        index,
        describe_graph(plan.graph, op, plan.printer, _weights(plan), plan.memory.shared),
        plan.messages,
        tuple(_largest(plan.printer.all(slot.sizes)) for slot in plan.memory.slots),
        tuple(conditions),
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
    return f"max_dim({first}, {_largest(rest)})" if rest else f"I({first})"


def _calls(plan: GraphPlan, functions: Functions) -> tuple[list[str], list[Call]]:
    """The distinct conditions of calls, and the calls in order."""
    conditions: dict[str, int] = {}
    calls: list[Call] = []
    for position, kernel in enumerate(plan.kernels):
        pointers = zip(kernel.arguments, kernel.context.params, strict=True)
        arguments = tuple(_pointer(argument, param, plan, position) for argument, param in pointers)
        can_fail = any(a.kind == "message" for a in kernel.arguments)
        text = _condition(plan, position)
        condition = None if text is None else conditions.setdefault(text, len(conditions))
        calls.append(Call(functions.of(kernel).name, arguments, can_fail, condition))
    return list(conditions), calls


def _condition(plan: GraphPlan, position: int) -> str | None:
    """When an output of a kernel has elements, in C++; None for always."""
    copies = len(plan.groups)
    if position < copies:
        outputs: Sequence[Value] = plan.groups[position].outputs
    else:
        outputs = (plan.graph.outputs[plan.memory.copies[position - copies].output],)
    lowest = {name: low for name, (low, _) in plan.graph.bounds.items()}
    texts: dict[str, None] = {}
    for value in outputs:
        if 0 in value.shape:
            continue
        dims = [dim for dim in value.shape if not _is_positive(dim, lowest)]
        if not dims:
            return None
        texts[" && ".join(f"{text} > 0" for text in dict.fromkeys(plan.printer.all(dims)))] = None
    return " || ".join(f"({text})" for text in texts) if len(texts) > 1 else next(iter(texts), "false")


def _is_positive(dim: Dim, lowest: Mapping[str, int]) -> bool:
    if is_static(dim):
        return bool(dim > 0)
    return bool(dim.is_positive or (dim.is_Symbol and lowest.get(dim.name, 0) > 0))


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
    functions: tuple[Function, ...]
    graphs: tuple[str, ...]


def render_graphs(plans: Sequence[GraphPlan], first_index: int, ops: Sequence[str], functions: Functions) -> str:
    """One source file with several graphs, which call these functions."""
    called = {functions.of(kernel): None for plan in plans for kernel in plan.kernels}
    graphs = tuple(_render_graph(plan, first_index + i, ops[i], functions) for i, plan in enumerate(plans))
    return render("cpu/base/graphs.cpp.j2", FileSource(tuple(called), graphs))
