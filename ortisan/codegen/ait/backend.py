"""The GPU backend: AITemplate's kernels, for CUDA architectures."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ortisan.codegen.ait.adapter import Adapter, AitSettings
from ortisan.codegen.ait.architectures import NO_ROCM, find_architectures, find_rocm
from ortisan.codegen.ait.blame import by_name
from ortisan.codegen.ait.build import build_cuda_library
from ortisan.codegen.ait.detect import find_aitemplate
from ortisan.codegen.ait.dims import with_derived_bounds
from ortisan.codegen.ait.emulated import build_twin, twin_project
from ortisan.codegen.ait.gpus import timing_gpus, why_not_run, why_not_timed
from ortisan.codegen.ait.library import render_cuda_library
from ortisan.codegen.ait.model import AitConstant, AitModel
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
    Twin,
)
from ortisan.codegen.tools.cuda import find_cuda
from ortisan.errors import OptionError
from ortisan.registry.dims import typical
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Graph

NOT_PROFILED = "not profiled: a rule by size chose the tiles of matrix products"
_PROVIDER = "CUDAExecutionProvider"
_GUESS = (1, 1024)
"""Bounds to try a graph with before the user is asked for some."""
_LEAST_SHARE = 0.01


def parse_cuda(detail: str) -> CudaBackend:
    return CudaBackend(*find_architectures(detail))


def parse_rocm(detail: str) -> CudaBackend:
    """AITemplate has a ROCm side, which ONNX Runtime has no provider for."""
    raise OptionError(f"rocm:{find_rocm(detail)} can't be compiled for ONNX Runtime: {NO_ROCM}; use a cuda target")


@dataclass(frozen=True)
class CudaBackend(Backend):
    architectures: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"cuda:{','.join(self.architectures)}"

    @property
    def uses_gpu(self) -> bool:
        return True

    @property
    def providers(self) -> tuple[str, ...]:
        return (_PROVIDER, "CPUExecutionProvider")

    @property
    def precisions(self) -> tuple[str, ...]:
        return ("keep", "fp16")

    def check(self, options: PlanOptions) -> None:
        if options.weights != "auto":
            raise OptionError(f"weights={options.weights!r} is for CPU targets; a GPU's weights are in its own memory")

    def planner(self, request: Request) -> AitPlanner:
        options = request.options
        settings = AitSettings(
            arch=self.architectures[0],
            half=options.precision == "fp16",
            tf32=options.tf32,
            fast_math=options.fast_math,
            devices=() if options.tune == "off" else timing_gpus(self.architectures[0]),
        )
        return AitPlanner(Adapter(find_aitemplate(), settings, request.say), request)

    def render(self, plans: Sequence[Plan], names: Names) -> Sources:
        own = [plan for plan in plans if isinstance(plan, AitPlan)]
        return render_cuda_library(
            [plan.model for plan in own],
            name=names.library,
            domain=names.domain,
            ops=names.ops,
            architectures=self.architectures,
            fast_math=any(plan.fast_math for plan in own),
        )

    def build(
        self,
        sources: Sources,
        *,
        name: str,
        bindings: bool = False,
        sanitize: str | None = None,
        on_progress: Say | None = None,
    ) -> Built:
        if bindings or sanitize is not None:
            raise OptionError(f"bindings and sanitize are for CPU targets; {self} runs in ONNX Runtime only")
        return build_cuda_library(
            sources,
            name=name,
            architectures=self.architectures,
            install=find_aitemplate(),
            on_progress=on_progress,
        )

    def emulated(self) -> str:
        find_cuda()
        return min(self.architectures, key=int)

    def twin(self, sources: Sources, *, name: str, on_progress: Say | None = None) -> Twin:
        install = find_aitemplate()
        project = twin_project(sources, name=name, architectures=self.architectures, install=install)
        return build_twin(project, on_progress)

    def obstacle(self) -> str | None:
        return why_not_run(self.architectures)

    def describe(self, plans: Sequence[Plan], options: PlanOptions, *, built: bool) -> dict[str, Any]:
        install = find_aitemplate()
        profiled = all(plan.model.profiled for plan in plans if isinstance(plan, AitPlan))
        note = "AITemplate chooses how products are blocked"
        return {
            "architectures": list(self.architectures),
            "machine": platform.machine(),
            "settings": {},
            "tuning": {"mode": options.tune, "machine": None, "note": note, "products": []},
            "cuda": find_cuda().version if built else None,
            "aitemplate": {"version": install.version, "commit": install.commit or None},
            "profiled": profiled,
            "warnings": [] if profiled else [f"{NOT_PROFILED}, because {self._why_not_profiled(options)}"],
        }

    def _why_not_profiled(self, options: PlanOptions) -> str:
        return "tune is off" if options.tune == "off" else why_not_timed(self.architectures[0])


@dataclass(frozen=True, eq=False)
class AitPlan(Plan):
    """AITemplate's sources for one graph."""

    model: AitModel
    fast_math: bool

    @property
    def graph(self) -> Graph:
        return self.model.graph

    @property
    def shared(self) -> Sequence[tuple[int, int]]:
        return self.model.shared

    def stored_weights(self) -> list[StoredWeight]:
        return [_stored(self.graph.name, constant) for constant in self.model.constants]

    def digest(self) -> str:
        files = hashlib.sha256(b"\0".join(name.encode() + data for name, data in self.model.files.items()))
        return f"{files.hexdigest()} fast_math={self.fast_math}"

    def describe(self) -> dict[str, Any]:
        model = self.model
        return {
            "kernels": model.kernels,
            "weight_bytes": sum(constant.data.nbytes for constant in model.constants),
            "profiled": model.profiled,
            "notes": list(model.notes),
        }

    def lines(self) -> list[tuple[str, str, str]]:
        profiled = () if self.model.profiled else ("not profiled: tiles were chosen by size",)
        return [("note", note, "") for note in (*self.model.notes, *profiled)]


def _stored(graph: str, constant: AitConstant) -> StoredWeight:
    data = constant.data
    dtype = DType.from_numpy(data.dtype)
    return StoredWeight(f"{graph}/{constant.name}", dtype, data.shape, lambda: np.ascontiguousarray(data))


@dataclass(frozen=True, eq=False)
class AitPlanner(Planner):
    adapter: Adapter
    request: Request

    def objections(self, graphs: Sequence[Graph]) -> Sequence[Reasons]:
        """Rules come first, then AITemplate itself.

        Graphs with next to nothing to compute are left to ONNX Runtime, unless they were asked for. A dim without upper
        bound is an error once all else is settled, because then it is really needed.
        """
        named = self.request.named
        small = [{} for _ in graphs] if self.request.asked else _small(graphs)
        tried = [replace(graph, bounds={**dict.fromkeys(named, _GUESS), **graph.bounds}) for graph in graphs]
        rules = [by_name(self.adapter.rules(graph), graph) for graph in tried]
        found = [{**refused, **reasons} for refused, reasons in zip(rules, small, strict=True)]
        if any(found):
            return found
        bounded = map(with_derived_bounds, graphs)
        free = {name for graph in bounded for name in graph.symbols if name not in graph.bounds}
        if free:
            raise OptionError(_unbounded([named.get(name, name) for name in sorted(free)]))
        return [by_name(refused, graph) for refused, graph in zip(self.adapter.refusals(graphs), graphs, strict=True)]

    def plan(
        self,
        graphs: Sequence[Graph],
        *,
        given: Mapping[str, Any] | None = None,
        before_timing: Callable[[], None] | None = None,
    ) -> list[AitPlan]:
        """The adapter made the sources when it was asked what it can take."""
        return [AitPlan(self.adapter.model(graph), self.request.options.fast_math) for graph in graphs]


def _small(graphs: Sequence[Graph]) -> list[dict[str, str]]:
    work = [typical(graph.flops) for graph in graphs]
    total = sum(work)
    reason = "too little to compute for a GPU kernel of its own"
    return [
        {node.origin: reason for node in graph.nodes} if flops < _LEAST_SHARE * total else {}
        for graph, flops in zip(graphs, work, strict=True)
    ]


def _unbounded(names: Sequence[str]) -> str:
    listed = ", ".join(f"'{name}': (1, N)" for name in names)
    return (
        f"AITemplate reserves memory for the largest shapes, so each dynamic dim needs an upper bound, and "
        f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} none; pass dims={{{listed}}} with your own numbers "
        "(--dim NAME=LOW:HIGH), or fix them"
    )
