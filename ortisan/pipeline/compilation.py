"""What `compile` returns: the plan of a model, before anything is built."""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx_ir as ir

from ortisan._version import __version__
from ortisan.codegen.backend import Backend, Names, Plan
from ortisan.converter.flops import node_flops
from ortisan.converter.partition import LeftOut, Partition, Subgraph
from ortisan.converter.passes.near_miss import NearMiss
from ortisan.errors import UnsupportedError
from ortisan.pipeline.options import Options
from ortisan.registry.dims import typical
from ortisan.registry.dtypes import Array
from ortisan.registry.evaluate import evaluate_graph
from ortisan.registry.graph import Graph


@dataclass(frozen=True, eq=False)
class Compilation:
    """The plan of a model: what is compiled, what is not and why. `generate` builds it, `convert_graph` applies it."""

    name: str
    ops: tuple[str, ...]
    """The custom op of each compiled subgraph."""
    plans: tuple[Plan, ...] = field(repr=False)
    partition: Partition = field(repr=False)
    model: ir.Model = field(repr=False)
    """The canonical model that the subgraphs are parts of."""
    options: Options = field(repr=False)
    model_hash: str = field(repr=False)
    near_misses: tuple[NearMiss, ...] = field(repr=False, default=())
    passes: Mapping[str, int] = field(repr=False, default_factory=dict)
    """How often each pass changed something."""
    symbols: Mapping[str, str] = field(repr=False, default_factory=dict)
    """Symbol in the op graphs -> its name in the model."""

    @property
    def target(self) -> Backend:
        return self.options.backend

    @functools.cached_property
    def domain(self) -> str:
        """The domain of the custom ops. It differs when the generated library does."""
        graphs = "\n".join(f"{graph}\n{graph.bounds}\n{graph.guards}" for graph in self.graphs)
        choices = "\n".join(plan.digest() for plan in self.plans)
        text = f"{__version__}\n{self.model_hash}\n{self.target}\n{graphs}\n{choices}"
        digits = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return f"ortisan.{self.name}_{digits}"

    @property
    def names(self) -> Names:
        return Names(self.name, self.domain, self.ops)

    @property
    def subgraphs(self) -> tuple[Subgraph, ...]:
        return self.partition.subgraphs

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return tuple(subgraph.graph for subgraph in self.subgraphs)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The nodes that stay in ONNX Runtime, each with its reason."""
        return self.partition.left_out

    @property
    def tuning(self) -> dict[str, Any]:
        """What was chosen for the plans, and by whom, as the manifest has it."""
        section: dict[str, Any] = self.target.describe(self.plans, self.options, built=False)["tuning"]
        return section

    def op_counts(self) -> dict[str, int]:
        """How often each op-graph op occurs in the compiled part."""
        return dict(Counter(node.op.name for graph in self.graphs for node in graph.nodes))

    def flops_share(self) -> float:
        """The part of the model's floating-point operations that is inside the custom ops, 0 to 1.

        Symbolic dims count as a typical size, bodies of control flow as run once.
        """
        names = {left.node for left in self.left_out}
        left = sum(node_flops(node) for node in self.model.graph.all_nodes() if node.name in names)
        inside = sum(max(0, typical(node.flops)) for graph in self.graphs for node in graph.nodes)
        return inside / (inside + left) if inside + left else 0.0

    def without(self, reasons: Mapping[int, str]) -> Compilation:
        """The compilation without some of its subgraphs (index -> reason): their nodes stay in ONNX Runtime."""
        kept = [index for index in range(len(self.ops)) if index not in reasons]
        returned = tuple(
            LeftOut(node.name or "", node.op_type, reason)
            for index, reason in reasons.items()
            for node in self.subgraphs[index].nodes
        )
        parts = Partition(tuple(self.subgraphs[index] for index in kept), (*self.left_out, *returned))
        ops, plans = tuple(self.ops[index] for index in kept), tuple(self.plans[index] for index in kept)
        return replace(self, ops=ops, plans=plans, partition=parts)

    def __repr__(self) -> str:
        nodes = sum(len(subgraph.nodes) for subgraph in self.subgraphs)
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
