"""Selects what to compile: include, exclude, between. Nodes left out are marked before any pass runs.

A mark is metadata on the node, so it survives the passes, and no pass merges a marked node with another.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import onnx_ir as ir

from ortisan.converter.read.bodies import inner_nodes
from ortisan.errors import OptionError

Selector: TypeAlias = "str | Callable[[ir.Node], bool]"
Selectors: TypeAlias = "Selector | Sequence[Selector] | None"
Between: TypeAlias = "tuple[Sequence[str] | str, Sequence[str] | str] | None"

LEFT_OUT = "ortisan.left_out"
LAYER_ANNOTATION = "layer_ann"
_LAYER_PREFIX = f"{LAYER_ANNOTATION}:"


def is_left_out(node: ir.Node) -> bool:
    return LEFT_OUT in node.metadata_props


def mark_selection(model: ir.Model, include: Selectors, exclude: Selectors, between: Between) -> None:
    """Marks every node that is not to be compiled, with the reason."""
    nodes = list(model.graph.all_nodes())
    if between is not None:
        _mark(nodes, _with_inner(nodes_between(model.graph, between)), "outside the subgraph asked for (between)")
    if include is not None:
        _mark(nodes, _matching(nodes, include, "include"), "not included")
    if exclude is not None:
        for node in _matching(nodes, exclude, "exclude"):
            node.metadata_props.setdefault(LEFT_OUT, "excluded")


def _mark(nodes: Iterable[ir.Node], wanted: set[ir.Node], reason: str) -> None:
    for node in nodes:
        if node not in wanted:
            node.metadata_props.setdefault(LEFT_OUT, reason)


def _matching(nodes: Sequence[ir.Node], selectors: Selectors, option: str) -> set[ir.Node]:
    listed = list(selectors) if isinstance(selectors, Iterable) and not isinstance(selectors, str) else [selectors]
    found: set[ir.Node] = set()
    for selector in listed:
        if not isinstance(selector, str) and not callable(selector):
            raise OptionError(f"{option} takes names of nodes, op types or functions of a node, not {selector!r}")
        matches = _with_inner(node for node in nodes if _matches(node, selector))
        if not matches and isinstance(selector, str):
            raise OptionError(
                f"{option}: no node is named '{selector}', has this op type or this layer annotation"
                f"{_meant(selector, nodes)}"
            )
        found |= matches
    return found


def _meant(selector: str, nodes: Iterable[ir.Node]) -> str:
    """The name or op type that is spelled nearly so, as a question."""
    known = {name.lower(): name for node in nodes for name in (node.op_type, node.name) if name}
    close = difflib.get_close_matches(selector.lower(), known, 1)
    return f"; did you mean '{known[close[0]]}'?" if close else ""


def _with_inner(nodes: Iterable[ir.Node]) -> set[ir.Node]:
    """Control flow is selected together with what is inside of it."""
    return {found for node in nodes for found in (node, *inner_nodes(node))}


def _matches(node: ir.Node, selector: Selector) -> bool:
    if not isinstance(selector, str):
        return bool(selector(node))
    if selector.startswith(_LAYER_PREFIX):
        pattern = selector[len(_LAYER_PREFIX) :]
        layer = node.metadata_props.get(LAYER_ANNOTATION)
        if layer is None:
            return False
        # ONNX Runtime's own rule for this annotation: a prefix, or with "=" in front the whole text.
        return layer == pattern[1:] if pattern.startswith("=") else layer.startswith(pattern)
    return selector in (node.name, node.op_type, f"{node.domain}::{node.op_type}")


def nodes_between(graph: ir.Graph, between: tuple[Sequence[str] | str, Sequence[str] | str]) -> set[ir.Node]:
    """The nodes on the paths from the named values to the named values."""
    if isinstance(between, str) or len(between) != 2:
        raise OptionError(f"between must be a pair of names of values, as in (['x'], ['y']), not {between!r}")
    starts, ends = ([names] if isinstance(names, str) else list(names) for names in between)
    values = {value.name: value for value in graph.inputs}
    values.update((value.name, value) for node in graph for value in node.outputs)
    for name in [*starts, *ends]:
        if name not in values:
            raise OptionError(f"between: the model has no value named '{name}'")
    owner = {inner: node for node in graph for inner in inner_nodes(node)}

    def readers(value: ir.Value) -> list[ir.Node | None]:
        return [owner.get(use.node, use.node) for use in value.uses()]

    after: set[ir.Node] = set()
    _walk([values[name] for name in starts], readers, after, forward=True)
    before: set[ir.Node] = set()
    stop = {values[name] for name in starts}
    _walk([values[name] for name in ends], lambda value: [value.producer()], before, forward=False, stop=stop)
    inside = after & before
    if not inside:
        raise OptionError(f"between: no path leads from {starts} to {ends}")
    return inside


def _walk(
    values: Iterable[ir.Value],
    neighbours: Callable[[ir.Value], Iterable[ir.Node | None]],
    seen: set[ir.Node],
    *,
    forward: bool,
    stop: Iterable[ir.Value] = (),
) -> None:
    blocked, pending = set(stop), list(values)
    while pending:
        for node in neighbours(pending.pop()):
            if node is None or node in seen:
                continue
            seen.add(node)
            pending.extend(value for value in (node.outputs if forward else _read(node)) if value not in blocked)


def _read(node: ir.Node) -> list[ir.Value]:
    """What a node reads, and what is read inside of it from around it."""
    inner = list(inner_nodes(node))
    values = (value for each in (node, *inner) for value in each.inputs)
    return [value for value in values if value is not None and value.producer() not in inner]
