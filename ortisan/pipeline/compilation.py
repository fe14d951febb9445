"""What `compile` returns: the plan of a model, before anything is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import onnx_ir as ir

from ortisan.codegen.ait.architectures import find_architectures, find_rocm
from ortisan.codegen.ait.model import AitModel
from ortisan.codegen.cpu.isa import Isa, find_isa
from ortisan.codegen.cpu.plan import GraphPlan
from ortisan.codegen.cpu.tune.choose import Tune, Tuning, check_mode
from ortisan.converter.partition import LeftOut, Partition
from ortisan.converter.passes.kv_cache import Cache, check_cache
from ortisan.converter.passes.near_miss import NearMiss
from ortisan.converter.read.selection import Between, Selectors
from ortisan.errors import OptionError, UnsupportedError
from ortisan.registry.dims import evaluate, symbols_of
from ortisan.registry.dtypes import Array
from ortisan.registry.evaluate import evaluate_graph
from ortisan.registry.graph import Graph

_TYPICAL_DIM = 64


Precision: TypeAlias = Literal["keep", "fp16"]


@dataclass(frozen=True)
class Target:
    """`cpu` (with an instruction set), `cuda` or `rocm` (with architectures), or `reference` (numpy)."""

    kind: Literal["cpu", "cuda", "rocm", "reference"]
    isa: Isa | None = None
    architectures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Target:
        if not isinstance(text, str):
            raise OptionError(f"target must be text as 'cpu' or 'cuda:80', not {text!r}")
        kind, _, detail = text.partition(":")
        if kind == "cpu":
            return cls("cpu", find_isa(detail or "native"))
        if kind == "cuda":
            architectures, notes = find_architectures(detail)
            return cls("cuda", None, architectures, notes)
        if kind == "rocm":
            return cls("rocm", None, (find_rocm(detail),))
        if kind == "reference" and not detail:
            return cls("reference")
        known = "cpu, cpu:<instruction set>, cuda:<architecture> and reference"
        raise OptionError(f"there is no target '{text}'; the targets are {known}")

    @property
    def is_gpu(self) -> bool:
        return self.kind in ("cuda", "rocm")

    def __str__(self) -> str:
        details = self.isa.name if self.isa is not None else ",".join(self.architectures)
        return f"{self.kind}:{details}" if details else self.kind


@dataclass(frozen=True, eq=False)
class Options:
    """The keywords of `compile`, checked."""

    target: Target
    dims: Mapping[str, int | tuple[int, int]]
    include: Selectors = None
    exclude: Selectors = None
    between: Between = None
    whole_graph: bool = False
    name: str | None = None
    tune: Tune = "off"
    cache: Cache = "as-is"
    precision: Precision = "keep"
    fast_math: bool = False
    tf32: bool = False
    patterns: bool = True
    """Whether patterns are looked for; without them ops are compiled as they were written."""

    def __post_init__(self) -> None:
        check_mode(self.tune)
        self._check_precision()
        if self.name is not None and not isinstance(self.name, str):
            raise OptionError(f"name must be text, not {self.name!r}")
        check_cache(self.cache)
        if self.whole_graph and any(option is not None for option in (self.include, self.exclude, self.between)):
            raise OptionError(
                "whole_graph=True compiles everything, so it can't be combined with include, exclude or between"
            )

    def _check_precision(self) -> None:
        if self.precision not in ("keep", "fp16"):
            raise OptionError(f"precision must be 'keep' or 'fp16', not {self.precision!r}")
        if self.target.is_gpu:
            return
        if self.precision != "keep" or self.fast_math or self.tf32:
            raise OptionError(f"precision, fast_math and tf32 are for GPU targets; {self.target} computes as it is")


Plans: TypeAlias = "tuple[GraphPlan | AitModel, ...]"
"""The kernels of each subgraph for a CPU, or AITemplate's sources for a GPU."""


@dataclass(frozen=True, eq=False)
class Compilation:
    """The plan of a model: what is compiled, what is not and why. `generate` builds it, `convert_graph` applies it."""

    name: str
    target: Target
    domain: str
    ops: tuple[str, ...]
    """The custom op of each compiled subgraph."""
    plans: Plans = field(repr=False)
    partition: Partition = field(repr=False)
    model: ir.Model = field(repr=False)
    """The canonical model that the subgraphs are parts of."""
    options: Options = field(repr=False)
    model_hash: str = field(repr=False)
    tuning: Tuning = field(repr=False)
    """How matrix products are blocked, and who chose it."""
    near_misses: tuple[NearMiss, ...] = field(repr=False, default=())
    passes: Mapping[str, int] = field(repr=False, default_factory=dict)
    symbols: Mapping[str, str] = field(repr=False, default_factory=dict)
    """Symbol in the op graphs -> its name in the model."""

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return tuple(subgraph.graph for subgraph in self.partition.subgraphs)

    @property
    def cpu_plans(self) -> tuple[GraphPlan, ...]:
        return tuple(plan for plan in self.plans if isinstance(plan, GraphPlan))

    @property
    def ait_models(self) -> tuple[AitModel, ...]:
        return tuple(plan for plan in self.plans if isinstance(plan, AitModel))

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The nodes that stay in ONNX Runtime, each with its reason."""
        return self.partition.left_out

    def op_counts(self) -> dict[str, int]:
        """How often each op-graph op occurs in the compiled part."""
        return dict(Counter(node.op.name for graph in self.graphs for node in graph.nodes))

    def compiled_flops(self) -> int:
        """Floating-point operations inside the custom ops, with every symbolic dim at a typical size."""
        return sum(_number(graph.flops) for graph in self.graphs)

    def __repr__(self) -> str:
        nodes = sum(len(subgraph.nodes) for subgraph in self.partition.subgraphs)
        return (
            f"Compilation('{self.name}', {self.target}: {nodes} nodes in {len(self.graphs)} custom op"
            f"{'' if len(self.graphs) == 1 else 's'}, {len(self.left_out)} left to ONNX Runtime)"
        )

    def run(self, feeds: Mapping[str, Array] | Sequence[Array]) -> tuple[Array, ...]:
        """The model's outputs, evaluated in numpy. Needs the whole model in one subgraph."""
        if len(self.graphs) != 1 or self.left_out:
            raise UnsupportedError(
                f"only a model compiled as a whole can be evaluated, and {len(self.left_out)} nodes of '{self.name}' "
                "are left out; compile with whole_graph=True"
            )
        graph = self.graphs[0]
        by_name = dict(zip(graph.output_names, evaluate_graph(graph, feeds), strict=True))
        if isinstance(feeds, Mapping):
            by_name = {**feeds, **by_name}
        return tuple(
            value.const_value.numpy() if value.is_initializer() and value.const_value else by_name[value.name or ""]
            for value in self.model.graph.outputs
        )


def _number(dim: Any) -> int:
    return evaluate(dim, dict.fromkeys(symbols_of(dim), _TYPICAL_DIM))
