"""Legality of an op graph, as a table of rules. Checked after every pass, and before kernels are planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ortisan.registry.dims import Facts, is_static, symbols_of
from ortisan.registry.graph import Graph, Value
from ortisan.registry.refusal import Refused


class IllegalGraph(Exception):
    """A bug in a pass: the op graph breaks a rule. Never caused by a model alone."""


def _defined_before_use(graph: Graph) -> Iterator[str]:
    defined: set[Value] = {*graph.inputs, *graph.constants}
    for node in graph.nodes:
        for value in node.inputs:
            if value not in defined:
                yield f"{node} reads {value.name} before it is defined"
        for value in node.outputs:
            if value in defined:
                yield f"{value.name} is defined twice"
            defined.add(value)
    for value in graph.outputs:
        if value not in defined:
            yield f"output {value.name} is never defined"


def _types_follow_inference(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        try:
            types = node.op.infer([value.type for value in node.inputs], Facts(node.origin))
        except Refused as refused:
            yield f"{node}: {refused}"
            continue
        if types != tuple(value.type for value in node.outputs):
            yield f"{node}: inference gives {', '.join(map(str, types))}"


def _constants_match_their_type(graph: Graph) -> Iterator[str]:
    for value in graph.constants:
        if value.data is None or value.data.dtype != value.dtype.numpy or value.data.shape != value.shape:
            yield f"constant {value} does not hold data of its type"


def _symbols_come_from_inputs(graph: Graph) -> Iterator[str]:
    bound = {dim.name for value in graph.inputs for dim in value.shape if not is_static(dim) and dim.is_Symbol}
    for value in graph.values():
        for dim in value.shape:
            for name in symbols_of(dim) - bound:
                yield f"{value} uses the symbol {name}, which no input has as a dim"


LEGALITY: dict[str, Callable[[Graph], Iterator[str]]] = {
    "values are defined once, before their use": _defined_before_use,
    "output types are what inference says": _types_follow_inference,
    "constants hold data of their type": _constants_match_their_type,
    "symbols are dims of inputs": _symbols_come_from_inputs,
}


def verify_graph(graph: Graph, after: str = "") -> None:
    """Raises `IllegalGraph` with the first broken rule, and with the pass that broke it."""
    where = f"{graph.name} after {after}" if after else graph.name
    for rule, check in LEGALITY.items():
        for problem in check(graph):
            raise IllegalGraph(f"{where}: {problem} (rule: {rule})")
