"""Dims as AITemplate sees them: symbols with bounds and names of ours, expressions made as simple as guards allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import sympy

from ortisan.codegen.ait.program import ProgramDim
from ortisan.registry.dims import Dim, Guard, evaluate, is_static, settle, symbol, symbols_of
from ortisan.registry.graph import Graph, Op
from ortisan.registry.refusal import Refused

Bounds = Mapping[str, tuple[int, int]]


def range_of(dim: Dim, bounds: Bounds) -> tuple[int, int]:
    """The least and the most a dim can be; expressions are taken to be monotonic in each symbol."""
    if is_static(dim):
        return int(dim), int(dim)
    names = sorted(symbols_of(dim))
    for name in names:
        if name not in bounds:
            raise Refused(f"the dim '{name}' has no upper bound, which AITemplate needs")
    ends = [evaluate(dim, {name: bounds[name][side] for name in names}) for side in (0, 1)]
    return max(0, min(ends)), max(0, *ends)


def with_derived_bounds(graph: Graph) -> Graph:
    """Bounds for symbols that have none and must equal what has: the width of a mask is past + sequence."""
    derived: dict[str, tuple[int, int]] = {}
    for guard in graph.guards:
        for dim, other in ((guard.a, guard.b), (guard.b, guard.a)):
            if guard.kind != "equal" or is_static(dim) or not dim.is_Symbol or dim.name in graph.bounds:
                continue
            if all(name in graph.bounds for name in symbols_of(other)):
                derived[dim.name] = range_of(other, graph.bounds)
    return replace(graph, bounds={**graph.bounds, **derived}) if derived else graph


class Simplifier:
    """Replaces dims by simpler ones that are equal: by a guard that is checked at run time, or by the bounds."""

    def __init__(self, guards: Iterable[Guard], bounds: Bounds) -> None:
        self.bounds = bounds
        self._equal: dict[Any, Any] = {}
        for guard in guards:
            if guard.kind == "equal":
                a, b = sorted((guard.a, guard.b), key=_weight)
                if _weight(b) > (1, 0) or not is_static(b):
                    self._equal[sympy.sympify(b)] = sympy.sympify(a)

    def dim(self, dim: Dim) -> Dim:
        if is_static(dim):
            return dim
        simple = dim.xreplace(self._equal)
        simple = simple.replace(lambda e: isinstance(e, (sympy.Min, sympy.Max)), self._decide)
        return settle(simple)

    def _decide(self, expression: Any) -> Any:
        """Of a Min or Max the argument that it always is, if the bounds tell."""
        pick = min if isinstance(expression, sympy.Min) else max
        try:
            ranges = {arg: range_of(settle(arg), self.bounds) for arg in expression.args}
        except (Refused, TypeError, ValueError):
            return expression
        for arg, (low, high) in ranges.items():
            others = [r for other, r in ranges.items() if other != arg]
            if pick is min and all(high <= r[0] for r in others):
                return arg
            if pick is max and all(low >= r[1] for r in others):
                return arg
        return expression

    def op(self, op: Op) -> Op:
        """The op with every dim among its attributes made simple."""
        if not is_dataclass(op):
            return op
        changes = {}
        for item in fields(op):
            value = getattr(op, item.name)
            simple = self._attribute(value)
            if simple is not value and simple != value:
                changes[item.name] = simple
        return replace(op, **changes) if changes else op

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._attribute(item) for item in value)
        return self.dim(value) if isinstance(value, sympy.Expr) else value


def _weight(dim: Dim) -> tuple[int, int]:
    if is_static(dim):
        return (0, 0)
    return (1, 0) if dim.is_Symbol else (2, int(dim.count_ops()))


class DimNames:
    """Texts of dims over names of ours, so that no name of the model reaches a source."""

    def __init__(self, graph: Graph) -> None:
        self.symbols = {name: f"d{index}_" for index, name in enumerate(graph.symbols)}
        self._replace = {symbol(name): symbol(new) for name, new in self.symbols.items()}

    def __call__(self, dim: Dim) -> ProgramDim:
        return int(dim) if is_static(dim) else str(dim.xreplace(self._replace))
