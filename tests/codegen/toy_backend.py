"""A third backend, as docs/add-a-target.md describes one: float32 elementwise chains and products as plain C loops.

A folder of its own in the package would hold the same: a parser, a backend, a planner, a plan, and templates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ortisan.codegen.backend import (
    Backend,
    Built,
    Names,
    Plan,
    Planner,
    PlanOptions,
    Reasons,
    Request,
    Say,
    Sources,
    StoredWeight,
)
from ortisan.codegen.expressions import DimPrinter
from ortisan.codegen.render import plain_files, render, render_text
from ortisan.codegen.tables import GraphTables, LibrarySource, WeightRow, describe_graph
from ortisan.codegen.tools.cmake import Project, build_project, library_file
from ortisan.codegen.tools.toolchain import find_compiler
from ortisan.errors import OptionError
from ortisan.registry.dims import product
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import Elementwise, Gemm, Reshape

_FUNCTIONS = {
    "ADD": "{} + {}",
    "SUB": "{} - {}",
    "MUL": "{} * {}",
    "RELU": "{0} < 0 ? 0 : {0}",
    "EXP": "std::exp({})",
}

_EXECUTION = """
#pragma once
#include "graph.h"
namespace ortisan {
struct Execution {
  void (*run)(const int64_t* symbols, const void* const* inputs, const void* const* weights, void* const* outputs);
};
}  // namespace ortisan
"""
_TARGET = """
#pragma once
#include "execution.h"
#include "ort_call.h"
namespace ortisan {
constexpr const char* execution_provider = "CPUExecutionProvider";
struct Setting {
  bool operator!=(const Setting&) const { return false; }
};
constexpr const char* setting_key = "speed";
constexpr const char* setting_choices = "nothing: there is one speed";
inline bool parse_setting(const char*, Setting*) { return false; }
namespace {
inline bool is_unusable(char*, size_t) { return false; }
}  // namespace
struct Kernel : OrtKernel {
  Kernel(const ort::Api& a, const GraphSpec& g) : OrtKernel(a, g) {}
  ort::Status* load(const ort::KernelInfo* info, Setting) { return OrtKernel::load(info); }
  ort::Status* compute(ort::KernelContext* context) const {
    Call call(*this);
    if (auto* status = call.prepare(context)) return status;
    graph.execution->run(call.symbols.items, call.inputs.items, weights.items, call.outputs.items);
    return nullptr;
  }
};
}  // namespace ortisan
"""
_GRAPH = """
{% from "graph/tables.j2" import spec, tables %}
#include <cmath>
#include <cstring>
#include <vector>
#include "execution.h"
namespace ortisan {
namespace graph_{{ index }} {
namespace {
{{ tables(graph) }}
void run(const int64_t* s, const void* const* in, const void* const* w, void* const* out) {
  using I [[maybe_unused]] = int64_t;
  (void)s, (void)in, (void)w;
{% for line in lines %}
  {{ line }}
{% endfor %}
}
const Execution execution = {run};
}  // namespace
{{ spec(graph) }}
}  // namespace graph_{{ index }}
}  // namespace ortisan
"""
_CMAKE = """
cmake_minimum_required(VERSION 3.18)
project({{ library }} LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 17)
file(GLOB sources ${CMAKE_SOURCE_DIR}/*.cpp)
add_library({{ library }} SHARED ${sources})
target_compile_options({{ library }} PRIVATE -O1 -fvisibility=hidden)
"""


def parse(detail: str) -> ToyBackend:
    if detail:
        raise OptionError(f"there is one toy, not '{detail}'")
    return ToyBackend()


@dataclass(frozen=True)
class GraphSource:
    index: int
    graph: GraphTables
    lines: tuple[str, ...]


@dataclass(frozen=True)
class BuildSource:
    library: str


@dataclass(frozen=True, eq=False)
class ToyPlan:
    graph: Graph
    shared: tuple[tuple[int, int], ...] = ()

    def stored_weights(self) -> list[StoredWeight]:
        return [
            StoredWeight(
                f"{self.graph.name}/{index}", value.dtype, value.shape or (1,), lambda d=value.data: np.array(d)
            )
            for index, value in enumerate(self.graph.constants)
        ]

    def digest(self) -> str:
        return "toy"

    def describe(self) -> dict[str, Any]:
        return {"kernels": len(self.graph.nodes), "weight_bytes": sum(w.nbytes for w in self.stored_weights())}

    def lines(self) -> list[tuple[str, str, str]]:
        return [("loops", str(len(self.graph.nodes)), "")]


class ToyPlanner(Planner):
    def objections(self, graphs: Sequence[Graph]) -> Sequence[Reasons]:
        return [
            {node.origin: f"the toy has no {node.op.name}" for node in g.nodes if not _is_known(node)} for g in graphs
        ]

    def plan(
        self,
        graphs: Sequence[Graph],
        *,
        given: Mapping[str, Any] | None = None,
        before_timing: Callable[[], None] | None = None,
    ) -> list[ToyPlan]:
        return [ToyPlan(graph) for graph in graphs]


@dataclass(frozen=True)
class ToyBackend(Backend):
    def __str__(self) -> str:
        return "toy"

    def planner(self, request: Request) -> ToyPlanner:
        return ToyPlanner()

    def render(self, plans: Sequence[Plan], names: Names) -> Sources:
        files: Sources = {**plain_files("graph", "ort"), "execution.h": _EXECUTION, "target.h": _TARGET}
        for index, (plan, op) in enumerate(zip(plans, names.ops, strict=True)):
            files[f"graph_{index}.cpp"] = render_text(_GRAPH, _source(plan, index, op))
        files["library.cpp"] = render("graph/library.cpp.j2", LibrarySource(len(plans), names.domain))
        files["CMakeLists.txt"] = render_text(_CMAKE, BuildSource(names.library))
        return files

    def build(
        self,
        sources: Sources,
        *,
        name: str,
        bindings: bool = False,
        sanitize: str | None = None,
        on_progress: Say | None = None,
    ) -> Built:
        start, compiler = time.perf_counter(), find_compiler()
        settings = {"CMAKE_CXX_COMPILER": ";".join(compiler.argv), "CMAKE_CXX_COMPILER_WORKS": "ON"}
        project = Project(name, sources, settings, {"compiler": compiler.version}, (library_file(name),))
        folder, cached = build_project(project, on_progress)
        return Built(folder / library_file(name), None, compiler.version, time.perf_counter() - start, cached)

    def describe(self, plans: Sequence[Plan], options: PlanOptions, *, built: bool) -> dict[str, Any]:
        tuning: dict[str, Any] = {"mode": options.tune, "machine": None, "note": "loops are loops", "products": []}
        return {"machine": None, "settings": {}, "tuning": tuning}


def _is_known(node: Node) -> bool:
    if any(value.dtype is not DType.FLOAT32 for value in (*node.inputs, *node.outputs)):
        return False
    return isinstance(node.op, (Gemm, Reshape)) or (isinstance(node.op, Elementwise) and node.op.func in _FUNCTIONS)


def _source(plan: Plan, index: int, op: str) -> GraphSource:
    graph = plan.graph
    rows = [WeightRow(w.name, w.dtype.onnx, w.nbytes, False) for w in plan.stored_weights()]
    printer = DimPrinter(graph.symbols)
    return GraphSource(index, describe_graph(graph, op, printer, rows), tuple(_lines(graph, printer)))


def _lines(graph: Graph, printer: DimPrinter) -> Iterator[str]:
    """Every value is an array of its own; outputs are copied at the end."""
    names: dict[Value, str] = {}
    for what, values in (("in", graph.inputs), ("w", graph.constants)):
        for index, value in enumerate(values):
            names[value] = f"{what}{index}"
            yield f"const float* {what}{index} = static_cast<const float*>({what}[{index}]);"
    for index, node in enumerate(graph.nodes):
        y = names[node.output] = f"v{index}"
        if isinstance(node.op, Reshape):
            yield f"const float* {y} = {names[node.inputs[0]]};"
            continue
        yield f"std::vector<float> m{index}({printer(product(node.output.shape))});"
        yield f"float* {y} = m{index}.data();"
        yield from (_product if isinstance(node.op, Gemm) else _elementwise)(
            node, [names[v] for v in node.inputs], y, printer
        )
    for index, value in enumerate(graph.outputs):
        count = printer(product(value.shape))
        yield f"if ({count} > 0) std::memcpy(out[{index}], {names[value]}, {count} * sizeof(float));"


def _elementwise(node: Node, operands: Sequence[str], y: str, printer: DimPrinter) -> Iterator[str]:
    assert isinstance(node.op, Elementwise)
    shape = node.output.shape
    for axis, dim in enumerate(shape):
        yield f"for (int64_t i{axis} = 0; i{axis} < {printer(dim)}; ++i{axis})"
    reads = []
    for value, name in zip(node.inputs, operands, strict=True):
        strides = printer.broadcast_strides(value.shape, shape)
        reads.append(f"{name}[{' + '.join([f'i{a} * {s}' for a, s in enumerate(strides)]) or '0'}]")
    yield f"{{ *{y}++ = {_FUNCTIONS[node.op.func].format(*reads)}; }}"
    yield f"{y} -= {printer(product(shape))};"


def _product(node: Node, operands: Sequence[str], y: str, printer: DimPrinter) -> Iterator[str]:
    assert isinstance(node.op, Gemm)
    x = node.inputs[0]
    rows, depth, columns = (printer(d) for d in (product(x.shape[:-1]), x.shape[-1], node.output.shape[-1]))
    read = f"{operands[1]}[n * {depth} + k]" if node.op.layout == "rcr" else f"{operands[1]}[k * {columns} + n]"
    bias = f"{operands[2]}[n]" if node.op.bias else "0"
    yield f"for (int64_t m = 0; m < {rows}; ++m) for (int64_t n = 0; n < {columns}; ++n) {{"
    yield f"  double sum = {bias};"
    yield f"  for (int64_t k = 0; k < {depth}; ++k) sum += double({operands[0]}[m * {depth} + k]) * {read};"
    yield f"  {y}[m * {columns} + n] = static_cast<float>(sum);"
    yield "}"
