"""Op graphs as they are: `Compilation.run` evaluates them with the ops' own numpy references."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    StoredWeight,
    check_no_gpu_options,
)
from ortisan.errors import OptionError
from ortisan.registry.graph import Graph


def parse(detail: str) -> ReferenceBackend:
    if detail:
        raise OptionError(f"there is no target 'reference:{detail}'; the target is 'reference'")
    return ReferenceBackend()


@dataclass(frozen=True, eq=False)
class ReferencePlan:
    """A graph is its own plan."""

    graph: Graph
    shared: tuple[tuple[int, int], ...] = ()

    def stored_weights(self) -> list[StoredWeight]:
        return []

    def digest(self) -> str:
        return ""

    def describe(self) -> dict[str, Any]:
        return {"kernels": 0, "weight_bytes": 0}

    def lines(self) -> list[tuple[str, str, str]]:
        return []


class ReferencePlanner(Planner):
    def plan(
        self,
        graphs: Sequence[Graph],
        *,
        given: Mapping[str, Any] | None = None,
        before_timing: Callable[[], None] | None = None,
    ) -> list[ReferencePlan]:
        return [ReferencePlan(graph) for graph in graphs]


@dataclass(frozen=True)
class ReferenceBackend(Backend):
    def __str__(self) -> str:
        return "reference"

    def check(self, options: PlanOptions) -> None:
        check_no_gpu_options(self, options)

    def planner(self, request: Request) -> ReferencePlanner:
        return ReferencePlanner()

    def render(self, plans: Sequence[Plan], names: Names) -> Sources:
        raise OptionError("target='reference' runs in numpy and has nothing to generate; use target='cpu'")

    def build(
        self,
        sources: Sources,
        *,
        name: str,
        bindings: bool = False,
        sanitize: str | None = None,
        on_progress: Say | None = None,
    ) -> Built:
        raise OptionError("target='reference' runs in numpy and has nothing to build; use target='cpu'")

    def describe(self, plans: Sequence[Plan], options: PlanOptions, *, built: bool) -> dict[str, Any]:
        note = "nothing is generated for this target"
        tuning: dict[str, Any] = {"mode": options.tune, "machine": None, "note": note, "products": []}
        return {"machine": None, "settings": {}, "tuning": tuning}
