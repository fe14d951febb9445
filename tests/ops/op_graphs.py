"""Runs small op graphs, written op by op, as custom ops in ONNX Runtime and compares them with the numpy reference.

For what the op graph can say before any ONNX op does. The graphs of a module are one library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import helper

from ortisan.codegen.cpu.build import build_library
from ortisan.codegen.cpu.isa import find_isa
from ortisan.codegen.cpu.library import render_library
from ortisan.codegen.cpu.plan import GraphPlan, plan_graph
from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, symbol
from ortisan.registry.dtypes import DType
from ortisan.registry.evaluate import evaluate_graph
from ortisan.registry.graph import Graph, TensorType, Value
from tests.models.sessions import open_session
from tests.ops.harness import run_session
from tests.tolerances import Tolerance, assert_close

Arrays = Mapping[str, np.ndarray[Any, Any]]
_DOMAIN = "ortisan.op_graphs"


@dataclass(frozen=True, eq=False)
class GraphCase:
    """`write` adds ops to a builder. Dims of inputs are numbers, unless `dims` names them."""

    name: str
    inputs: Arrays
    write: Callable[..., Value | Sequence[Value]]
    dims: Mapping[str, Sequence[str | int]] = field(default_factory=dict)
    tolerance: Tolerance | None = None

    def __str__(self) -> str:
        return self.name

    @cached_property
    def graph(self) -> Graph:
        builder = Builder(self.name)
        builder.origin = self.name
        values = [builder.input(name, self._type(name, array)) for name, array in self.inputs.items()]
        made = self.write(builder, *values)
        return builder.finish([made] if isinstance(made, Value) else made)

    def _type(self, name: str, array: np.ndarray[Any, Any]) -> TensorType:
        shape: list[Dim] = [symbol(d) if isinstance(d, str) else d for d in self.dims.get(name, array.shape)]
        return TensorType(DType.from_numpy(array.dtype), tuple(shape))

    @cached_property
    def plan(self) -> GraphPlan:
        return plan_graph(self.graph)

    def reference(self, inputs: Arrays | None = None) -> list[np.ndarray[Any, Any]]:
        return list(evaluate_graph(self.graph, inputs or self.inputs))


class GraphBatch:
    """One library of many graphs."""

    def __init__(self, cases: Sequence[GraphCase], name: str) -> None:
        self.cases = list(cases)
        self.name = name

    @cached_property
    def library(self) -> Path:
        ops = [f"op_{index}" for index in range(len(self.cases))]
        domain, isa = f"{_DOMAIN}.{self.name}", find_isa("native")
        sources = render_library([c.plan for c in self.cases], name=self.name, domain=domain, ops=ops, isa=isa)
        return build_library(sources, name=self.name, isa=isa).library

    def session(self, case: GraphCase, threads: int = 1) -> ort.InferenceSession:
        graph, plan = case.graph, case.plan
        assert not plan.weights
        inputs = [_info(v.name, v) for v in graph.inputs]
        outputs = [_info(name, v) for name, v in zip(_names(graph), graph.outputs, strict=True)]
        op = f"op_{self.cases.index(case)}"
        node = helper.make_node(op, [i.name for i in inputs], _names(graph), domain=f"{_DOMAIN}.{self.name}")
        imports = [helper.make_opsetid("", 20), helper.make_opsetid(f"{_DOMAIN}.{self.name}", 1)]
        model = helper.make_model(
            helper.make_graph([node], case.name, inputs, outputs), opset_imports=imports, ir_version=10
        )
        return open_session(model, self.library, threads=threads)

    def run(self, case: GraphCase, inputs: Arrays | None = None, threads: int = 1) -> list[np.ndarray[Any, Any]]:
        return run_session(self.session(case, threads), inputs or case.inputs)

    def check(self, case: GraphCase) -> None:
        for index, (have, want) in enumerate(zip(self.run(case), case.reference(), strict=True)):
            assert_close(have, want, f"{case.name} output {index}", case.tolerance)


def _names(graph: Graph) -> list[str]:
    return [f"out{index}" for index in range(len(graph.outputs))]


def _info(name: str, value: Value) -> Any:
    shape = [dim if isinstance(dim, int) else str(dim) for dim in value.shape]
    return helper.make_tensor_value_info(name, value.dtype.onnx, [d if isinstance(d, int) else None for d in shape])
