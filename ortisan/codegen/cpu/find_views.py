"""Finds the nodes that need no kernel, because all that reads or makes their values can go through strides.

Attention, rotary and cache updates read rows of any strides, elementwise loops and copies lines of any strides. So the
reshapes, permutes, splits, slices, selections and expansions before them move nothing: their results are layouts of the
memory they come from. All readers of a result must agree, else it is copied once for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import TypeAlias

from ortisan.codegen.cpu.kernels import kernel_of, scalar_call
from ortisan.codegen.cpu.views import Views, root_of
from ortisan.codegen.expressions import contiguous_strides
from ortisan.codegen.strides import Layout, contiguous, has_strides, line_length, walk
from ortisan.registry.dims import Dim, is_static, product
from ortisan.registry.graph import Graph, Node, Value

_EXPENSIVE_LINE = 128
"""Loops with expensive functions work on several vectors at once. On shorter lines than this that is lost, and a copy
costs less."""
_FAR_LINE = 64
"""Short lines that don't follow each other in memory are slow to fetch. Two loops fetch them twice, a copy once."""

Loops: TypeAlias = Mapping[Node, tuple[Node, ...]]
Users: TypeAlias = Mapping[Value, Sequence[Node]]


def find_views(graph: Graph, loops: Loops | None = None) -> Views:
    """The views of a graph.

    `loops` are the elementwise nodes that may read through strides, each with all that run in its loop. A product's
    epilogue can't, so nodes of one don't belong to them.
    """
    users: dict[Value, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for value in node.inputs:
            users[value].append(node)
    reordered = _reordered_writes(graph, users)
    skipped = set(reordered)
    sources = {node.inputs[0]: node.output for node in reordered}
    written = {node.inputs[0]: strides for node, strides in reordered.items()}
    folded = _folded_reads(graph, users, loops or {}, set(graph.nodes) - skipped)
    skipped |= folded
    sources |= {value: node.inputs[0] for node in folded for value in node.outputs}
    layouts = {
        value: layout
        for value, layout in _find_layouts(graph, folded).items()
        if not _is_whole(value, layout, root_of(value, sources))
    }
    whole = [node for node in graph.nodes if node.op.view and node not in skipped]
    skipped.update(whole)
    sources |= {node.output: node.inputs[0] for node in whole}
    return Views(skipped, sources, layouts, written)


def _reordered_writes(graph: Graph, users: Users) -> dict[Node, tuple[Dim, ...]]:
    """The nodes that only reorder what a kernel can write in that order itself, with the strides it writes under."""
    producer = {value: node for node in graph.nodes for value in node.outputs}
    found: dict[Node, tuple[Dim, ...]] = {}
    for node in graph.nodes:
        source = producer.get(node.inputs[0]) if node.inputs else None
        if source is None or not kernel_of(source).writes_rows:
            continue
        strides = kernel_of(node).row_strides(node)
        if strides is not None and len(users[source.output]) == 1 and source.output not in graph.outputs:
            found[node] = strides
    return found


def _folded_reads(graph: Graph, users: Users, loops: Loops, movers: Set[Node]) -> set[Node]:
    """Of these nodes, those whose results are read through strides only, where strides can express them."""
    kept = set(graph.outputs)
    expressible = _find_layouts(graph, movers)
    folded: set[Node] = set()
    for node in reversed(graph.nodes):
        if node in movers and all(
            value in expressible
            and value not in kept
            and users[value]
            and _agree(users[value], value, expressible[value], folded, loops)
            for value in node.outputs
        ):
            folded.add(node)
    return folded


def _find_layouts(graph: Graph, nodes: Set[Node]) -> dict[Value, Layout]:
    """Layouts of what these nodes make, in the memory of what the others make; without those that have none."""
    found: dict[Value, Layout] = {}
    for node in graph.nodes:
        if node in nodes and (layouts := kernel_of(node).layouts) is not None:
            source = found.get(node.inputs[0]) or contiguous(node.inputs[0].shape)
            found.update(zip(node.outputs, layouts(node, source), strict=False))
    return found


def _is_whole(value: Value, layout: Layout, root: Value) -> bool:
    if value.type.elements != root.type.elements or layout.offset != 0:
        return False
    return has_strides(value.shape, layout.strides, contiguous_strides(value.shape))


def _agree(users: Sequence[Node], value: Value, layout: Layout, folded: Set[Node], loops: Loops) -> bool:
    """Whether all users of a value read it as it lies, or only pass it on."""
    kernels = {loops.get(user, (user,)) for user in users}
    far = len(kernels) > 1 and not layout.in_order
    return all(user in folded or _reads(user, value, layout, loops, far) for user in users)


def _reads(user: Node, value: Value, layout: Layout, loops: Loops, far: bool) -> bool:
    """Whether a node can read a value that lies so, and is not slower for it."""
    kernel = kernel_of(user)
    if not kernel.reads(user, value, layout):
        return False
    return not kernel.elementwise or (user in loops and _pays(user, value, layout, loops[user], far))


def _pays(user: Node, value: Value, layout: Layout, loop: Sequence[Node], far: bool) -> bool:
    """Whether a loop's lines are long enough for it."""
    shape = user.output.shape
    length = line_length(walk(value.shape, shape, layout.strides), shape)
    if length is None:
        return False
    expensive = any(scalar_call(node).expensive for node in loop)
    shortest = max(_EXPENSIVE_LINE if expensive else 1, _FAR_LINE if far else 1)
    return length == product(shape) or not is_static(length) or length >= shortest
