"""Fusion groups: which nodes of the op graph run as one kernel.

A matrix product takes the elementwise nodes after it as its epilogue; elementwise nodes of one shape run as one loop;
products of one input with several constants (queries, keys and values) run together, and so do a product and the
depthwise convolution behind it. Groups run in the order of the
list; a node joins a group only when everything it reads is ready by then.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from ortisan.codegen.cpu.group import Group, operand_kind, rows_and_columns
from ortisan.codegen.cpu.kernels import follows, kernel_of
from ortisan.codegen.cpu.views import Views
from ortisan.registry.dims import Dim
from ortisan.registry.graph import Graph, Node, Value


class _Draft:
    def __init__(self, index: int, anchor: Node | None, first: Node) -> None:
        self.index = index
        self.anchor = anchor
        self.chain: list[Node] = [] if anchor else [first]
        self.shape = first.output.shape

    @property
    def nodes(self) -> list[Node]:
        return [*([self.anchor] if self.anchor else []), *self.chain]

    def accepts(self, node: Node, views: Views, home: Mapping[Value, _Draft]) -> bool:
        for value in node.inputs:
            owner = home.get(views.root(value))
            if owner is not None and owner.index > self.index:
                return False
            # Other elements of what this very loop makes are not ready; an epilogue reads no strides.
            if views.is_strided(value) and (owner is self or self.anchor is not None):
                return False
        if self.anchor is None:
            inside = [value for value in node.inputs if home.get(value) is self]
            return node.output.shape == self.shape and bool(inside)
        rows, columns = rows_and_columns(self.shape)
        if rows_and_columns(node.output.shape) != (rows, columns):
            return False
        return all(
            home.get(views.root(value)) is self or operand_kind(value.shape, rows, columns) is not None
            for value in node.inputs
        )


def fuse(graph: Graph, views: Views, *, keep_all: bool = False) -> tuple[Group, ...]:
    """With `keep_all` every value between two groups is stored."""
    drafts, home = _draft(graph, views)
    groups = _join_products([_finish(draft, graph, views, home) for draft in drafts], views)
    return groups if keep_all else _follow(groups, graph, views)


def loops(graph: Graph, views: Views) -> dict[Node, tuple[Node, ...]]:
    """The elementwise nodes that join no product, each with all that run in its loop."""
    drafts, _ = _draft(graph, views)
    return {node: tuple(draft.chain) for draft in drafts if draft.anchor is None for node in draft.chain}


def _draft(graph: Graph, views: Views) -> tuple[list[_Draft], dict[Value, _Draft]]:
    drafts: list[_Draft] = []
    home: dict[Value, _Draft] = {}
    users: dict[Value, set[Node]] = defaultdict(set)
    for node in graph.nodes:
        for value in node.inputs:
            users[value].add(node)
    for index, node in enumerate(graph.nodes):
        if node in views.skipped:
            continue
        elementwise = kernel_of(node).elementwise
        draft = _home_of(node, views, home) if elementwise else None
        if draft is None:
            draft = _Draft(index, None if elementwise else node, node)
            drafts.append(draft)
        else:
            draft.chain.append(node)
            for absorbed in _absorbed(node, draft, home, users):
                draft.chain[:0] = absorbed.chain
                home.update((made.output, draft) for made in absorbed.chain)
                drafts.remove(absorbed)
        home.update((views.root(value), draft) for value in node.outputs)
    return drafts, home


def _absorbed(
    node: Node, draft: _Draft, home: Mapping[Value, _Draft], users: Mapping[Value, Set[Node]]
) -> Iterator[_Draft]:
    """Earlier loops of the same shape that a node of a loop reads, and nothing outside of the two."""
    if draft.anchor is not None:
        return
    read = {id(d): d for value in node.inputs if (d := home.get(value)) is not None}
    for other in sorted(read.values(), key=lambda other: -other.index):
        if other is draft or other.anchor is not None or other.shape != draft.shape:
            continue
        inside = {*other.chain, *draft.chain}
        if all(users[made.output] <= inside for made in other.chain):
            yield other


def _home_of(node: Node, views: Views, home: Mapping[Value, _Draft]) -> _Draft | None:
    """The latest group that can take an elementwise node."""
    candidates = {id(d): d for value in node.inputs if (d := home.get(views.root(value))) is not None}
    for draft in sorted(candidates.values(), key=lambda draft: -draft.index):
        fusable = draft.anchor is None or kernel_of(draft.anchor).epilogue
        if fusable and draft.accepts(node, views, home):
            return draft
    return None


def _finish(draft: _Draft, graph: Graph, views: Views, home: Mapping[Value, _Draft]) -> Group:
    inside = {views.root(value) for node in draft.nodes for value in node.outputs}
    inputs = dict.fromkeys(value for node in draft.nodes for value in node.inputs if views.root(value) not in inside)
    wanted = {views.root(value) for value in graph.outputs}
    for node in graph.nodes:
        if node not in views.skipped and home[views.root(node.output)] is not draft:
            wanted.update(views.root(value) for value in node.inputs)
    outputs = tuple(value for node in draft.nodes for value in node.outputs if views.root(value) in wanted)
    return Group(draft.anchor, tuple(draft.chain), tuple(inputs), outputs)


def _join_products(groups: Sequence[Group], views: Views) -> tuple[Group, ...]:
    """Products of one input with constants become one group, where the first of them is, if all they read is ready."""
    made = {views.root(value): index for index, group in enumerate(groups) for value in group.outputs}
    leader: dict[tuple[Value, Dim, Dim], int] = {}
    joined: dict[int, list[Group]] = {index: [group] for index, group in enumerate(groups)}
    for index, group in enumerate(groups):
        if group.anchor is None or not kernel_of(group.anchor).joins(group.anchor):
            continue
        x = group.anchor.inputs[0]
        first = leader.setdefault((views.root(x), *rows_and_columns(x.shape)), index)
        if first != index and all(made.get(views.root(value), -1) < first for value in group.inputs):
            joined[first].append(group)
            del joined[index]
    return tuple(map(_join, joined.values()))


def _follow(groups: Sequence[Group], graph: Graph, views: Views) -> tuple[Group, ...]:
    """A group behind the one that makes its first input becomes one with it, where one kernel does both."""
    readers = Counter(views.root(value) for group in groups for value in group.inputs)
    readers.update(views.root(value) for value in graph.outputs)
    makers: dict[Value, Group] = {}
    found: dict[Group, None] = {}
    for each in groups:
        group, anchor = each, each.anchor
        x = anchor.inputs[0] if anchor and anchor.inputs and not group.members else None
        before = makers.get(x) if x else None
        if anchor and x and before and readers[x] == 1 and follows(anchor, before):
            del found[before]
            own = (value for value in group.inputs if value is not x)
            group = replace(group, inputs=tuple(dict.fromkeys((*before.inputs, *own))), before=before)
        found[group] = None
        makers.update((value, group) for value in group.outputs)
    return tuple(found)


def _join(members: Sequence[Group]) -> Group:
    first = members[0]
    if len(members) == 1:
        return first
    inputs = dict.fromkeys(value for member in members for value in member.inputs)
    outputs = tuple(value for member in members for value in member.outputs)
    return Group(first.anchor, first.chain, tuple(inputs), outputs, tuple(members))
