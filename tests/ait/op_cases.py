"""The graphs of the op tests, with bounds for their dims, and many of them joined into one."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import sympy

import ortisan
from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, is_static, settle, symbol
from ortisan.registry.evaluate import bind_symbols
from ortisan.registry.graph import Graph, Op, TensorType, Value
from tests.ops.harness import Case
from tests.ops.op_graphs import GraphCase

OPS = Path(__file__).parent.parent / "ops"
_ROOM = 3


@dataclass(frozen=True, eq=False)
class Written:
    """An op test's graph, with bounds, and its inputs."""

    name: str
    graph: Graph
    inputs: Sequence[np.ndarray[Any, Any]]

    @property
    def dtypes(self) -> set[str]:
        return {str(value.dtype.value) for value in self.graph.values()}


def written_cases() -> Iterator[Written]:
    """Every case of tests/ops that lowers and has no empty tensor."""
    for path in sorted(OPS.glob("test_*.py")):
        module = importlib.import_module(f"tests.ops.{path.stem}")
        seen: set[int] = set()
        for value in vars(module).values():
            for case in value if isinstance(value, list) else ():
                if isinstance(case, (Case, GraphCase)) and id(case) not in seen:
                    seen.add(id(case))
                    graph, inputs = _lowered(case)
                    if graph is not None and all(array.size for array in inputs):
                        yield Written(f"{path.stem[5:]}.{case.name}", graph, inputs)


def _lowered(case: Case | GraphCase) -> tuple[Graph | None, list[np.ndarray[Any, Any]]]:
    if isinstance(case, GraphCase):
        graph, inputs = case.graph, list(case.inputs.values())
    else:
        try:
            compiled = ortisan.compile(case.model(), whole_graph=True, target="reference")
        except ortisan.OrtisanError:
            return None, []
        if len(compiled.graphs) != 1:
            return None, []
        graph, feeds = compiled.graphs[0], case.feeds()
        inputs = [feeds[value.name] for value in graph.inputs]
    sizes = bind_symbols(graph, inputs)
    bounds = {name: (min(1, size), size + _ROOM) for name, size in sizes.items()}
    return replace(graph, bounds=bounds), inputs


def fixed(case: Written) -> Written:
    """The same case with a number for every dim."""
    sizes = {symbol(name): size for name, size in bind_symbols(case.graph, case.inputs).items()}
    builder = Builder(case.graph.name)
    outputs = _replay(builder, case, sizes, case.name)
    return Written(f"{case.name}.fixed", builder.finish(outputs), case.inputs)


def _replay(builder: Builder, case: Written, names: Mapping[Any, Any], prefix: str) -> list[Value]:
    """Adds a case's nodes with its symbols replaced; returns its outputs."""
    builder.origin = case.name
    values: dict[Value, Value] = {value: value for value in case.graph.constants}
    for value in case.graph.inputs:
        type_ = TensorType(value.dtype, tuple(_renamed(dim, names) for dim in value.shape))
        values[value] = builder.input(f"{prefix}_{value.name}", type_)
    for node in case.graph.nodes:
        made = builder.add_many(_renamed_op(node.op, names), *(values[value] for value in node.inputs))
        values.update(zip(node.outputs, made, strict=True))
    return [values[value] for value in case.graph.outputs]


def join(name: str, cases: Sequence[Written]) -> tuple[Graph, list[np.ndarray[Any, Any]]]:
    """One graph of all cases side by side; the origin of a node is its case."""
    builder, outputs, arrays = Builder(name), [], []
    bounds: dict[str, tuple[int, int]] = {}
    for index, case in enumerate(cases):
        names = {symbol(s): symbol(f"c{index}_{s}") for s in case.graph.symbols}
        bounds |= {f"c{index}_{s}": bound for s, bound in case.graph.bounds.items()}
        outputs += _replay(builder, case, names, str(index))
        arrays += list(case.inputs)
    return builder.finish(outputs, bounds=bounds), arrays


def _renamed(dim: Dim, names: Mapping[Any, Any]) -> Dim:
    return dim if is_static(dim) else settle(dim.xreplace(names))


def _renamed_op(op: Op, names: Mapping[Any, Any]) -> Op:
    def walk(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(walk, value))
        return _renamed(value, names) if isinstance(value, sympy.Expr) else value

    return replace(op, **{f.name: walk(getattr(op, f.name)) for f in fields(op)})  # type: ignore[arg-type]


def op_names(cases: Sequence[Written]) -> Counter[str]:
    return Counter(type(node.op).__name__ for case in cases for node in case.graph.nodes)
