"""Cuts a graph around ops that have no ONNX form: they run eager, and what is between them is compiled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.split_module import split_module

from ortisan.torch.reasons import NoFormError

_FEWEST = 2
"""Calls that a part must have to be worth a session of its own."""


def nodes_of(graph: fx.Graph, error: Exception) -> set[fx.Node]:
    """The nodes of a graph that an error is about."""
    if not isinstance(error, NoFormError):
        return set()
    return {node for node in graph.nodes if node.name in error.nodes or _is_named(node.target, error.ops)}


def _is_named(target: Any, ops: Collection[str]) -> bool:
    """ "aten.bernoulli" stands for all its overloads."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return not {str(target), str(target).rpartition(".")[0]}.isdisjoint(ops)


def cut_around(
    module: fx.GraphModule, left: Collection[fx.Node], compile_part: Callable[[fx.GraphModule], Any]
) -> Callable[[Sequence[Any]], Any] | None:
    """A function of the graph's arguments, whose parts without these nodes are compiled; None if nothing is left."""
    eager: set[str] = set()
    numbers: dict[fx.Node, int] = {}
    number, was_left = 0, False
    for node in module.graph.nodes:
        if node.op not in ("call_function", "call_method", "call_module"):
            continue
        # What takes an op's several results apart stays with it.
        is_left = node in left or any(
            numbers.get(each) == number and was_left and not isinstance(each.meta.get("val"), torch.Tensor)
            for each in node.all_input_nodes
        )
        if is_left != was_left:
            number, was_left = number + 1, is_left
        numbers[node] = number
        if is_left:
            eager.add(f"submod_{number}")
    parts = split_module(module, module, lambda node: numbers.get(node, number), keep_original_order=True)
    compiled = 0
    for name, part in list(parts.named_children()):
        if not isinstance(part, fx.GraphModule):
            continue
        calls = [node for node in part.graph.nodes if node.op == "call_function"]
        if len(calls) >= _FEWEST and name not in eager:
            setattr(parts, name, _Part(part, compile_part(part)))
            compiled += 1
    return (lambda args: parts.forward(*args)) if compiled else None


class _Part(nn.Module):
    """A compiled part, called as the graph that it is made of."""

    def __init__(self, part: fx.GraphModule, compiled: Callable[[list[Any]], Any]) -> None:
        super().__init__()
        output = next(node for node in reversed(part.graph.nodes) if node.op == "output")
        self._is_single = isinstance(output.args[0], fx.Node)
        self._compiled = compiled

    def forward(self, *args: Any) -> Any:
        results = self._compiled(list(args))
        return results[0] if self._is_single else results
