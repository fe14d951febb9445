"""What kernels of ours compute element by element becomes chains: each tensor that something else reads is one loop.

Functions and moves that AITemplate has join the chain that their operands come from, if nothing else is among those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.chain_writer import COMPUTED, MADE, MOVED, write_chain
from ortisan.registry.builder import Builder, is_constant
from ortisan.registry.dims import Dim
from ortisan.registry.graph import Graph, Node, Op, Value
from ortisan.registry.ops import Reshape
from ortisan.registry.passes.rewrite import Rule, run_pass


def fuse_chains(graph: Graph, rows: Mapping[type[Op], AitOp]) -> Graph:
    return run_pass("fuse_chains", graph, _FuseChains(graph, _chained(graph, rows)))


def _chained(graph: Graph, rows: Mapping[type[Op], AitOp]) -> dict[Value, Node]:
    """The values that chains compute, with the node of each: what is ours, and what follows it alone."""
    found: dict[Value, Node] = {}
    for node in graph.nodes:
        ours = isinstance(node.op, (*COMPUTED, *MOVED, *MADE)) and rows[type(node.op)].is_ours(node, graph.bounds)
        if ours or _follows(node, found):
            found.update(dict.fromkeys(node.outputs, node))
    return found


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


class _FuseChains(Rule):
    def __init__(self, graph: Graph, chained: Mapping[Value, Node]) -> None:
        self._chained = chained
        self._values: dict[Value, Value] = {}
        self._stored = {value for node in graph.nodes for value in node.inputs if node.output not in chained}
        self._stored.update(graph.outputs)

    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        """What only chains read is part of theirs: nobody asks for what stands here for it."""
        self._values.update(zip(node.inputs, inputs, strict=True))
        if node.output not in self._chained:
            return None
        made = [self._chain(b, value) if value in self._stored else value for value in node.outputs]
        self._values.update(zip(node.outputs, made, strict=True))
        return made

    def _chain(self, b: Builder, value: Value) -> Value:
        chain, read = write_chain(value, self._chained)
        return b.add(chain, *(self._values[operand] for operand in read))
