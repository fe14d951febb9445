"""How a graph reads its weights: hints by which the library decides whether to copy them to larger pages."""

from __future__ import annotations

from ortisan.codegen.cpu.group import rows_and_columns
from ortisan.codegen.cpu.kernels import kernel_of
from ortisan.codegen.cpu.plan import GraphPlan
from ortisan.registry.dims import Dim, evaluate, symbols_of

_FEW_ROWS = 8
"""Up to so many rows, a product spends its time reading the weights rather than multiplying."""


def looked_up(plan: GraphPlan) -> frozenset[int]:
    """The weights that are tables: rows are picked out of them, and nothing reads them as a whole."""
    tables: set[int] = set()
    others: set[int] = set()
    lookups = [kernel_of(group.nodes[0]).table for group in plan.groups]
    lookups += [False for _ in plan.memory.copies]
    for kernel, is_lookup in zip(plan.kernels, lookups, strict=True):
        (tables if is_lookup else others).update(a.index for a in kernel.arguments if a.kind == "weight")
    return frozenset(tables - others)


def is_thin(plan: GraphPlan) -> bool:
    """Whether products of few rows, by their static dims and upper bounds, read most bytes of the packed weights."""
    sizes = plan.packed_sizes()
    rows: dict[int, int | None] = {}
    for group, kernel in zip(plan.groups, plan.kernels, strict=False):
        if group.anchor is None:
            continue
        most = _most(rows_and_columns(group.anchor.output.shape)[0], plan)
        for argument in kernel.arguments:
            if argument.kind == "weight" and plan.weights[argument.index].layout != "plain":
                rows[argument.index] = _larger(rows.get(argument.index, 0), most)
    thin = sum(sizes[index] for index, count in rows.items() if count is not None and count <= _FEW_ROWS)
    return 2 * thin > sum(sizes[index] for index in rows)


def _most(rows: Dim, plan: GraphPlan) -> int | None:
    """The largest number of rows there can be, None when a symbol has no bound."""
    bounds = plan.graph.bounds
    names = symbols_of(rows)
    return evaluate(rows, {name: bounds[name][1] for name in names}) if names <= bounds.keys() else None


def _larger(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else max(a, b)
