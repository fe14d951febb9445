"""Runs compiled graphs through their Python module and reads every value out of their memory afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ortisan.codegen.backend import Tracer
from ortisan.codegen.cpu.memory import Place
from ortisan.codegen.cpu.plan import GraphPlan
from ortisan.codegen.tools.binding import import_binding
from ortisan.registry.dims import evaluate
from ortisan.registry.dtypes import Array
from ortisan.registry.graph import Value


@dataclass(frozen=True, eq=False)
class CpuTracer(Tracer):
    """`plans` keep all values apart."""

    module: Any
    plans: Sequence[GraphPlan]

    @classmethod
    def open(cls, binding: Path | None, plans: Sequence[GraphPlan]) -> CpuTracer:
        return cls(import_binding(binding), plans)

    def __call__(self, index: int, weights: Sequence[Array], inputs: Sequence[Array]) -> Mapping[Value, Array]:
        graph, plan = self.module.Graph(index), self.plans[index]
        graph.set_weights(list(weights))
        outputs, scratch, numbers = graph.trace(list(inputs))
        symbols = dict(zip(plan.graph.symbols, numbers, strict=True))
        offsets = plan.memory.offsets(symbols)

        def read(value: Value, place: Place) -> Array:
            shape = tuple(evaluate(dim, symbols) for dim in value.shape)
            start = offsets[place.index] if place.kind == "scratch" else 0
            memory = scratch if place.kind == "scratch" else np.ascontiguousarray(outputs[place.index]).reshape(-1)
            count = int(np.prod(shape, dtype=np.int64)) * value.dtype.size
            found: Array = memory.view(np.uint8)[start : start + count].view(value.dtype.numpy).reshape(shape)
            return found

        return {
            value: read(value, place)
            for node in plan.graph.nodes
            for value in node.outputs
            if (place := plan.memory.places.get(value)) is not None and place.kind != "input"
        }
