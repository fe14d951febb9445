"""What kernels of ours compute element by element becomes chains: each tensor that something else reads is one loop.

Functions and moves that AITemplate has join the chain that their operands come from, if nothing else is among those.
A split whose pieces only functions of floats read begins one, too: gates read the halves of a product in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.chain_writer import COMPUTED, MADE, MOVED, write_chain
from ortisan.registry.builder import Builder, is_constant
from ortisan.registry.dims import Dim
from ortisan.registry.graph import Graph, Node, Op, Value
from ortisan.registry.ops import Elementwise, Reshape, Split
from ortisan.registry.passes.rewrite import Rule, run_pass

_MOST_RESULTS = 8
_MOST_STEPS = 64


def fuse_chains(graph: Graph, rows: Mapping[type[Op], AitOp]) -> Graph:
    return run_pass("fuse_chains", graph, _FuseChains(graph, _chained(graph, rows)))


def _chained(graph: Graph, rows: Mapping[type[Op], AitOp]) -> dict[Value, Node]:
    """The values that chains compute, with the node of each: what is ours, and what follows it alone."""
    found: dict[Value, Node] = {}
    gates = _gates(graph)
    for node in graph.nodes:
        ours = isinstance(node.op, (*COMPUTED, *MOVED, *MADE)) and rows[type(node.op)].is_ours(node, graph.bounds)
        if ours or node in gates or _follows(node, found):
            found.update(dict.fromkeys(node.outputs, node))
    return found


def _gates(graph: Graph) -> set[Node]:
    """Splits all of whose pieces are read by functions alone."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node)
    return {
        node
        for node in graph.nodes
        if isinstance(node.op, Split)
        and not set(node.outputs) & set(graph.outputs)
        and all(isinstance(reader.op, Elementwise) for value in node.outputs for reader in readers.get(value, ()))
    }


def _follows(node: Node, found: Mapping[Value, Node]) -> bool:
    """Whether a node reads nothing but chains and numbers."""
    if not isinstance(node.op, (*COMPUTED, *MOVED)) and not _is_thin(node):
        return False
    read = [value for value in node.inputs if not is_constant(value) or value.type.elements != 1]
    return bool(read) and all(value in found for value in read)


def _is_thin(node: Node) -> bool:
    """A reshape that only adds or drops dims of 1."""
    return isinstance(node.op, Reshape) and _long(node.inputs[0].shape) == _long(node.output.shape)


def _long(shape: Sequence[Dim]) -> list[Dim]:
    return [dim for dim in shape if dim != 1]


@dataclass(frozen=True)
class _Group:
    """Tensors of one shape that one loop computes, where the first of them is needed."""

    place: int
    members: list[Value]


def _ends(graph: Graph, chained: Mapping[Value, Node]) -> set[Value]:
    """Where long chains are cut: what is read there is stored, so that no kernel computes more than some steps."""
    ends: set[Value] = set()
    steps: dict[Value, int] = {}
    for node in graph.nodes:
        if node.output not in chained:
            continue
        read = [value for value in dict.fromkeys(node.inputs) if value in chained and value not in ends]
        if sum(steps[value] for value in read) >= _MOST_STEPS:
            ends.update(read)
            read = []
        steps.update(dict.fromkeys(node.outputs, 1 + sum(steps[value] for value in read)))
    return ends


def _groups(graph: Graph, chained: Mapping[Value, Node], ends: Set[Value]) -> list[_Group]:
    """A tensor joins an earlier loop of its shape if all that it reads is there before that."""
    stored = set(ends) | {value for node in graph.nodes for value in node.inputs if node.output not in chained}
    stored.update(graph.outputs)
    made = {value: place for place, node in enumerate(graph.nodes) for value in node.outputs if value not in chained}
    groups: list[_Group] = []
    for place, node in enumerate(graph.nodes):
        for value in node.outputs:
            if value not in chained or value not in stored:
                continue
            ready = max((made.get(read, -1) for read in write_chain([value], chained, ends)[1]), default=-1)
            group = next((group for group in reversed(groups) if _takes(group, value, ready)), None)
            if group is None:
                group = _Group(place, [])
                groups.append(group)
            group.members.append(value)
            made[value] = group.place
    return groups


def _takes(group: _Group, value: Value, ready: int) -> bool:
    return group.members[0].shape == value.shape and ready < group.place and len(group.members) < _MOST_RESULTS


class _FuseChains(Rule):
    """What only chains read is part of theirs: nobody asks for what stands for it."""

    def __init__(self, graph: Graph, chained: Mapping[Value, Node]) -> None:
        self._chained, self._ends = chained, _ends(graph, chained)
        groups = _groups(graph, chained, self._ends)
        self._groups = {member: group for group in groups for member in group.members}
        self._made: dict[Value, Value] = {}

    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
        if node.output not in self._chained:
            kept = b.add_many(node.op, *inputs)
            self._made.update(zip(node.outputs, kept, strict=True))
            return kept
        for value in node.outputs:
            if value in self._groups and value not in self._made:
                self._write(b, self._groups[value].members)
        return [self._made.get(value, value) for value in node.outputs]

    def _write(self, b: Builder, members: Sequence[Value]) -> None:
        chain, read = write_chain(members, self._chained, self._ends)
        made = b.add_many(chain, *(self._made.get(value, value) for value in read))
        self._made.update(zip(members, made, strict=True))
