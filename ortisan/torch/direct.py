"""Calls of a compiled graph without AOTAutograd's wrapper, where that has nothing to do.

The wrapper writes changed inputs back, makes views of their bases again, and turns autocast off. For a graph without
any of this it takes longer than a small graph itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._functorch._aot_autograd.schemas import OutputType, PlainTensorMeta
from torch._guards import TracingContext

from ortisan.torch.compiled import CompiledGraph

_PLAIN_OUTPUTS = (OutputType.non_alias, OutputType.unsafe_view_alias)


@dataclass(eq=False)
class Traced:
    """What AOTAutograd has made of one graph of dynamo's."""

    graphs: list[CompiledGraph] = field(default_factory=list)
    is_pure: bool = True
    """Whether no input is changed, and no result is a view."""

    def add(self, graph: CompiledGraph, inputs: int) -> None:
        """To be called where AOTAutograd calls a compiler; `inputs` is how many dynamo's graph has."""
        self.graphs.append(graph)
        self.is_pure = self.is_pure and _is_pure(graph.module, inputs)

    def draws(self) -> bool:
        return any(graph.program is None or graph.program.draws for graph in self.graphs)


def _is_pure(module: fx.GraphModule, inputs: int) -> bool:
    context = TracingContext.try_get()
    meta = context.fw_metadata if context is not None else None
    if meta is None or len(module.graph.find_nodes(op="placeholder")) != inputs:
        return False
    kinds = [*meta.subclass_inp_meta, *meta.subclass_fw_graph_out_meta]
    return (
        not meta.tokens
        and not any(each.mutates_data or each.mutates_metadata for each in meta.input_info)
        and not meta.num_intermediate_bases
        and all(isinstance(each, PlainTensorMeta) for each in kinds)
        and all(each.output_type in _PLAIN_OUTPUTS for each in meta.output_info)
    )


def without_wrapper(wrapped: Callable[..., Any], traced: Traced) -> Callable[..., Any]:
    """A function like `wrapped`, which is the graph of an inference as AOTAutograd gives it."""
    if len(traced.graphs) != 1 or not traced.is_pure or torch.is_autocast_enabled("cpu"):
        return wrapped
    (graph,) = traced.graphs

    def call(*args: Any) -> Any:
        return wrapped(*args) if graph.program is None else graph(list(args))

    return call
