"""Explains what torch.compile makes of a module: its graphs, its graph breaks, and how much of each is compiled."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ortisan.errors import OrtisanError
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.compile import compile_source
from ortisan.pipeline.manifest import group_left_out
from ortisan.pipeline.source import Source
from ortisan.torch.compiled import CompiledGraph
from ortisan.torch.dynamo import compile_graph
from ortisan.torch.options import front_options
from ortisan.torch.places import place_of_onnx
from ortisan.torch.reasons import WentEager


@dataclass(frozen=True, eq=False)
class GraphReport:
    """One graph. `left_out` lists op types that stay in ONNX Runtime, with the reason, where the first of them is in
    your code, and how many there are.
    """

    title: str
    nodes: int
    compiled: int
    left_out: tuple[tuple[str, str, int], ...]
    eager: str | None
    """Why the graph runs eager, or None."""

    def __str__(self) -> str:
        if self.eager is not None:
            return f"{self.title}: eager, {self.eager}"
        lines = [f"{self.title}: {self.compiled} of {self.nodes} ONNX nodes compiled"]
        return "\n".join(lines + [f"  {count} x {op}: {reason}" for op, reason, count in self.left_out])


@dataclass(frozen=True, eq=False)
class Explanation:
    """The graphs in the order in which they ran, and the reason for each graph break."""

    graphs: tuple[GraphReport, ...]
    breaks: tuple[str, ...]

    def __str__(self) -> str:
        counts = ((len(self.graphs), "graph"), (len(self.breaks), "break"))
        head = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts)
        return "\n".join([head, *map(str, self.graphs), *(f"break: {reason}" for reason in self.breaks)])


def explain(
    module: nn.Module, *args: Any, options: Mapping[str, Any] | None = None, dynamic: bool | None = None, **kwargs: Any
) -> Explanation:
    """Runs the module twice in eager, and plans, but does not build, the graphs that torch.compile captures.

    dynamo's caches are emptied before and after, as `torch._dynamo.explain` does.
    """
    chosen = front_options({**(options or {}), "strict": False})
    made: list[tuple[CompiledGraph, str | None]] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", WentEager)
            start = len(made)
            compile_graph(graph, inputs, chosen, on_graph=lambda part: made.append((part, None)))
            went = [str(warning.message) for warning in caught if warning.category is WentEager]
            reasons = [text.split(" runs eager: ")[-1] for text in went]
            for index in range(start, len(made)):
                part, _ = made[index]
                made[index] = (part, reasons.pop(0) if part.program is None and reasons else None)
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad():
        breaks = torch._dynamo.explain(module)(*args, **kwargs).break_reasons
        torch._dynamo.reset()
        torch.compile(module, backend=backend, dynamic=dynamic)(*args, **kwargs)
    torch._dynamo.reset()
    graphs = [_report(part, eager, chosen) for part, eager in made]
    for graph, _ in made:
        graphs += [_report(part, None, chosen) for part in graph.parts if part is not graph]
    return Explanation(tuple(graphs), tuple(_reason(each) for each in breaks))


def _report(part: CompiledGraph, eager: str | None, options: Any) -> GraphReport:
    if part.program is None or part.model is None:
        return GraphReport(part.title, 0, 0, (), eager or "it can't be exported")
    nodes = sum(1 for _ in part.model.graph.all_nodes())
    try:
        compiled: Compilation = compile_source(Source.of(part.model, options.build), options.build)
    except OrtisanError as error:
        return GraphReport(part.title, nodes, 0, (), str(error))
    groups = group_left_out(compiled.left_out)
    nodes_by_name = {node.name: node for node in part.model.graph.all_nodes()}

    def why(group: Mapping[str, Any]) -> str:
        """The reason, and where the first of the nodes comes from; passes may have made it themselves."""
        node = next((nodes_by_name[name] for name in group["nodes"] if name in nodes_by_name), None)
        place = place_of_onnx(node) if node is not None else ""
        return f"{group['reason']} ({place})" if place else str(group["reason"])

    left = tuple((group["op_type"], why(group), len(group["nodes"])) for group in groups)
    count = sum(len(subgraph.nodes) for subgraph in compiled.subgraphs)
    return GraphReport(part.title, count + sum(each[2] for each in left), count, left, None)


def _reason(found: Any) -> str:
    lines = [line.strip() for line in str(found.reason).splitlines() if line.strip()]
    at = found.user_stack[-1] if found.user_stack else None
    return f"{lines[0]} ({at.filename}:{at.lineno})" if at is not None else lines[0]
