"""The CPU backend: kernels rendered from our own templates, for one instruction set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ortisan._version import __version__
from ortisan.codegen.backend import (
    Backend,
    Built,
    Names,
    Plan,
    Planner,
    PlanOptions,
    Request,
    Say,
    Sources,
    Tracer,
    check_no_gpu_options,
)
from ortisan.codegen.cpu.build import build_library
from ortisan.codegen.cpu.isa import Isa, find_isa, why_not_run
from ortisan.codegen.cpu.kernels import objection
from ortisan.codegen.cpu.library import render_library
from ortisan.codegen.cpu.plan import GraphPlan, plan_graph
from ortisan.codegen.cpu.trace import CpuTracer
from ortisan.codegen.cpu.tune.choices import Tuning, by_cost_model
from ortisan.codegen.cpu.tune.choose import tune
from ortisan.registry.graph import Graph
from ortisan.registry.passes.channels_last import channels_last
from ortisan.registry.passes.fold_affine import fold_affine
from ortisan.registry.passes.narrow_products import PRECISIONS, narrow_products
from ortisan.registry.passes.pointwise import pointwise
from ortisan.registry.passes.widen import widen

WORTH_TIMING = 1 << 20
"""Bytes of weights below which `tune="auto"` leaves products to the cost model: they fit a core's cache and take less
than a millisecond, and nobody waits for minutes to save a few percent of that."""


def parse(detail: str) -> CpuBackend:
    return CpuBackend(find_isa(detail or "native"))


@dataclass(frozen=True)
class CpuBackend(Backend):
    isa: Isa

    def __str__(self) -> str:
        return f"cpu:{self.isa.name}"

    @property
    def precisions(self) -> tuple[str, ...]:
        return ("keep", *PRECISIONS)

    def check(self, options: PlanOptions) -> None:
        check_no_gpu_options(self, options)

    def planner(self, request: Request) -> CpuPlanner:
        return CpuPlanner(self.isa, request)

    def render(self, plans: Sequence[Plan], names: Names) -> Sources:
        own = cpu_plans(plans)
        return {**render_library(own, name=names.library, domain=names.domain, ops=names.ops, isa=self.isa)}

    def build(
        self,
        sources: Sources,
        *,
        name: str,
        bindings: bool = False,
        sanitize: str | None = None,
        on_progress: Say | None = None,
    ) -> Built:
        return build_library(
            sources, name=name, isa=self.isa, bindings=bindings, sanitize=sanitize, on_progress=on_progress
        )

    def obstacle(self) -> str | None:
        return why_not_run(self.isa)

    def describe(self, plans: Sequence[Plan], options: PlanOptions, *, built: bool) -> dict[str, Any]:
        own = cpu_plans(plans)
        tuning = next((plan.tuning for plan in own if plan.tuning is not None), None) or by_cost_model((), options.tune)
        return {
            "isa": self.isa.name,
            "machine": self.isa.machine,
            "cpu_features": list(self.isa.features),
            "settings": {"weights": options.weights},
            "tuning": tuning.to_json([product for plan in own for product in plan.products]),
        }

    def trace(self, plans: Sequence[Plan], names: Names) -> Tracer:
        """Every value stays in memory to the end of a run."""
        kept = [plan_graph(plan.graph, keep_all=True, winograd=plan.winograd) for plan in cpu_plans(plans)]
        built = self.build(self.render(kept, names), name=names.library, bindings=True)
        return CpuTracer.open(built.binding, kept)


def cpu_plans(plans: Sequence[Plan]) -> list[GraphPlan]:
    return [plan for plan in plans if isinstance(plan, GraphPlan)]


@dataclass(frozen=True)
class CpuPlanner(Planner):
    isa: Isa
    request: Request

    def objections(self, graphs: Sequence[Graph]) -> Sequence[Mapping[str, str]]:
        return [{node.origin: why for node in graph.nodes if (why := objection(node)) is not None} for graph in graphs]

    def arrange(self, graph: Graph) -> Graph:
        arranged = widen(pointwise(fold_affine(channels_last(graph))))
        return narrow_products(arranged, self.request.options.precision)

    def plan(
        self,
        graphs: Sequence[Graph],
        *,
        given: Mapping[str, Any] | None = None,
        before_timing: Callable[[], None] | None = None,
    ) -> list[GraphPlan]:
        self.request.say("planning the kernels")
        plans = [plan_graph(graph, winograd=self.request.options.winograd) for graph in graphs]
        tuning = self._tune(plans, before_timing) if given is None else Tuning.from_json(given)
        return [replace(_with_choices(plan, tuning), tuning=tuning) for plan in plans]

    def _tune(self, plans: Sequence[GraphPlan], before_timing: Callable[[], None] | None) -> Tuning:
        products = list(dict.fromkeys(product for plan in plans for product in plan.products))
        mode = self.request.options.tune
        if mode == "off":
            return by_cost_model(products)
        if obstacle := why_not_run(self.isa):
            return by_cost_model(products, mode, obstacle)
        weight_bytes = sum(size for plan in plans for size in plan.packed_sizes())
        if mode == "auto" and weight_bytes < WORTH_TIMING:
            return by_cost_model(products, mode, "the products are too small to time; tune='full' times them")
        return tune(
            products,
            mode=mode,
            isa=self.isa,
            weight_bytes=weight_bytes,
            version=__version__,
            on_progress=self.request.say,
            before_timing=before_timing,
        )


def _with_choices(plan: GraphPlan, tuning: Tuning) -> GraphPlan:
    """The plan, made again if a product of it is blocked otherwise than the cost model says."""
    chosen = tuple(map(tuning.table, plan.products))
    if chosen == plan.tables:
        return plan
    return plan_graph(plan.graph, blocking_table=tuning.table, winograd=plan.winograd)
