"""The blockings of a compilation's matrix products, and who chose each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ortisan.codegen.backend import Tune
from ortisan.codegen.cpu.tune.blocking import (
    Blocking,
    BlockingTable,
    Problem,
    Product,
    as_numbers,
    model_blocking,
    table,
)
from ortisan.registry.dtypes import DType

Chooser: TypeAlias = Literal["cost model", "measured", "from cache"]


@dataclass(frozen=True)
class Choice:
    """The blocking of one problem, and where it comes from.

    Seconds are by threads; empty where nothing was timed. `noise` is how far two times of the same blocking were apart.
    """

    problem: Problem
    blocking: Blocking
    source: Chooser
    seconds: Mapping[str, float]
    model_seconds: Mapping[str, float]
    noise: float | None = None

    def to_json(self) -> dict[str, Any]:
        problem = self.problem
        return {
            "dtype": problem.dtype.value,
            "depth": problem.depth,
            "columns": list(problem.columns),
            "rows": problem.rows,
            "blocking": list(as_numbers(self.blocking)),
            "from": self.source,
            "seconds": dict(self.seconds),
            "cost_model_seconds": dict(self.model_seconds),
            "noise": self.noise,
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Choice:
        problem = Problem(DType(row["dtype"]), row["depth"], tuple(row["columns"]), row["rows"])
        return cls(
            problem, Blocking(*row["blocking"]), row["from"], row["seconds"], row["cost_model_seconds"], row["noise"]
        )


@dataclass(frozen=True)
class Tuning:
    """The blockings of a compilation. `machine` is what they were measured on, `note` why they were not."""

    mode: Tune
    machine: str | None
    note: str | None
    choices: tuple[Choice, ...]

    def table(self, product: Product) -> BlockingTable:
        chosen = {choice.problem: choice.blocking for choice in self.choices}
        return table(product, lambda problem: chosen.get(problem) or model_blocking(problem))

    def to_json(self, products: Sequence[Product]) -> dict[str, Any]:
        """What the manifest says, about the products that are there."""
        present = {problem for product in products for problem, _ in product.sizes()}
        rows = [choice.to_json() for choice in self.choices if choice.problem in present]
        return {"mode": self.mode, "machine": self.machine, "note": self.note, "products": rows}

    @classmethod
    def from_json(cls, section: Mapping[str, Any]) -> Tuning:
        choices = tuple(Choice.from_json(row) for row in section["products"])
        return cls(section["mode"], section["machine"], section["note"], choices)


def by_cost_model(products: Sequence[Product], mode: Tune = "off", note: str | None = None) -> Tuning:
    """Touches neither the machine nor the cache."""
    problems = dict.fromkeys(problem for product in products for problem, _ in product.sizes())
    return Tuning(mode, None, note, tuple(by_model(problem) for problem in problems))


def by_model(problem: Problem) -> Choice:
    return Choice(problem, model_blocking(problem), "cost model", {}, {})
