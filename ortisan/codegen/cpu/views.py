"""Values that are another value's memory: reshapes, and what kernels read or write through strides.

Attention, rotary and cache updates read rows of any strides, elementwise loops and copies lines of any strides. So the
reshapes, permutes, splits, slices, selections and expansions before them move nothing: their results are layouts of the
memory they come from. All readers of a result must agree, else it is copied once for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

from ortisan.codegen.cpu.costs import is_expensive
from ortisan.codegen.expressions import contiguous_strides
from ortisan.registry.builder import is_constant
from ortisan.registry.dims import Dim, is_static, product, settle
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import (
    Attention,
    CacheWrite,
    Concatenate,
    DynamicSlice,
    Expand,
    IndexSelect,
    Permute,
    Reshape,
    Rotary,
    Split,
)

_EXPENSIVE_LINE = 128
"""Loops with expensive functions work on several vectors at once. On shorter lines than this that is lost, and a copy
costs less."""
_FAR_LINE = 64
"""Short lines that don't follow each other in memory are slow to fetch. Two loops fetch them twice, a copy once."""


Loops: TypeAlias = Mapping[Node, tuple[Node, ...]]


@dataclass(frozen=True)
class Layout:
    """Where the elements of a value lie in the memory of another, in elements."""

    offset: Dim
    strides: tuple[Dim, ...]
    in_order: bool = True
    """Whether its elements lie in memory in the order of their indices, or in the reverse one along an axis."""


class Views:
    """`root` is the value whose memory a value lives in; `skipped` nodes run no kernel.

    `loops` are the elementwise nodes that may read through strides, each with all that run in its loop. A product's
    epilogue can't, so nodes of one don't belong to them.
    """

    def __init__(self, graph: Graph, loops: Loops | None = None) -> None:
        self.skipped: set[Node] = set()
        self._source: dict[Value, Value] = {}
        self._layouts: dict[Value, Layout] = {}
        self._written: dict[Value, Node] = {}
        users: dict[Value, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            for value in node.inputs:
                users[value].append(node)
        self._fold_writes(graph, users)
        self._fold_reads(graph, users, loops or {})
        for node in graph.nodes:
            if node.op.view and node not in self.skipped:
                self._alias(node.output, node.inputs[0], node)

    def _alias(self, value: Value, source: Value, node: Node) -> None:
        self.skipped.add(node)
        self._source[value] = source

    def root(self, value: Value) -> Value:
        while value in self._source:
            value = self._source[value]
        return value

    def _fold_reads(self, graph: Graph, users: dict[Value, list[Node]], loops: Loops) -> None:
        """Skips the nodes whose results are read through strides only, where strides can express them."""
        kept = set(graph.outputs)
        movers = set(graph.nodes) - self.skipped
        expressible = self._find_layouts(graph, movers)
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
        for node in folded:
            for value in node.outputs:
                self._alias(value, node.inputs[0], node)
        for value, layout in self._find_layouts(graph, folded).items():
            if not _is_whole(value, layout, self.root(value)):
                self._layouts[value] = layout

    @staticmethod
    def _find_layouts(graph: Graph, nodes: set[Node]) -> dict[Value, Layout]:
        """Layouts of what these nodes make, in the memory of what the others make; without those that have none."""
        found: dict[Value, Layout] = {}
        for node in graph.nodes:
            if node not in nodes or not isinstance(node.op, _MOVES):
                continue
            source = found.get(node.inputs[0]) or Layout(0, contiguous_strides(node.inputs[0].shape))
            found.update(zip(node.outputs, _layouts_of(node, source), strict=False))
        return found

    def _fold_writes(self, graph: Graph, users: dict[Value, list[Node]]) -> None:
        """An attention whose output is only permuted writes it in the permuted order."""
        producer = {value: node for node in graph.nodes for value in node.outputs}
        for node in graph.nodes:
            if node in self.skipped or not isinstance(node.op, Permute) or node.op.order[-1] != len(node.op.order) - 1:
                continue
            source = producer.get(node.inputs[0])
            if source is None or not isinstance(source.op, Attention):
                continue
            if len(users[source.output]) == 1 and source.output not in graph.outputs:
                self._written[source.output] = node
                self._alias(source.output, node.output, node)

    def is_strided(self, value: Value) -> bool:
        """Whether a value is not all of its root's memory, in its order."""
        return value in self._layouts

    def layout(self, value: Value) -> Layout:
        """How a value lies in its root's memory."""
        return self._layouts.get(value) or Layout(0, contiguous_strides(value.shape))

    def written_strides(self, value: Value) -> tuple[Dim, ...]:
        """Strides under which an attention writes its output."""
        permute = self._written.get(value)
        if permute is None or not isinstance(permute.op, Permute):
            return contiguous_strides(value.shape)
        strides = contiguous_strides(permute.output.shape)
        order = permute.op.order
        return tuple(strides[order.index(axis)] for axis in range(len(order)))


_MOVES = (Reshape, Permute, Split, DynamicSlice, IndexSelect, Expand)


_COPIES = (Concatenate, Permute, Split, DynamicSlice, Expand)
"""What runs as a strided copy, unless it is folded too."""


def _is_whole(value: Value, layout: Layout, root: Value) -> bool:
    if value.type.elements != root.type.elements:
        return False
    contiguous = contiguous_strides(value.shape)
    same = (dim == 1 or a == b for dim, a, b in zip(value.shape, layout.strides, contiguous, strict=True))
    return bool(layout.offset == 0) and all(same)


def _agree(users: Sequence[Node], value: Value, layout: Layout, folded: Set[Node], loops: Loops) -> bool:
    """Whether all users of a value read it as it lies, or only pass it on."""
    kernels = {loops.get(user, (user,)) for user in users}
    far = len(kernels) > 1 and not layout.in_order
    return all(user in folded or _reads(user, value, layout, loops, far) for user in users)


def _reads(user: Node, value: Value, layout: Layout, loops: Loops, far: bool) -> bool:
    """Whether a node can read a value that lies so, and is not slower for it."""
    op = user.op
    if isinstance(op, Attention):
        return value not in user.inputs[:3] or bool(layout.strides[-1] == 1)
    if isinstance(op, Rotary):
        return bool(layout.strides[-1] == 1)
    if isinstance(op, CacheWrite) and value not in (user.inputs[0], *user.inputs[2:]):
        dims, strides = value.shape[op.axis + 1 :], layout.strides[op.axis + 1 :]
        return all(
            dim == 1 or have == want for dim, have, want in zip(dims, strides, contiguous_strides(dims), strict=True)
        )
    if isinstance(op, _COPIES):
        return line_length(walk(value.shape, value.shape, layout.strides), value.shape) is not None
    if user not in loops:
        return False
    shape = user.output.shape
    length = line_length(walk(value.shape, shape, layout.strides), shape)
    if length is None:
        return False
    shortest = max(_EXPENSIVE_LINE if is_expensive(loops[user]) else 1, _FAR_LINE if far else 1)
    return length == product(shape) or not is_static(length) or length >= shortest


def walk(have: Sequence[Dim], extents: Sequence[Dim], strides: Sequence[Dim]) -> tuple[Dim | None, ...]:
    """Strides under which a tensor is read as if it had these extents; None where only run time tells."""
    own = (0 if dim == 1 else s if dim == extent else None
           for dim, extent, s in zip(have, extents[len(extents) - len(have):], strides, strict=True))  # fmt: skip
    return (*(0 for _ in range(len(extents) - len(have))), *own)


def continues(outer: Dim | None, inner: Dim | None, extent: Dim) -> bool:
    """Whether an axis and the one inside it, of this extent, are walked through in one stride."""
    return outer is not None and inner is not None and bool(outer == product((extent, inner)))


def line_length(steps: Sequence[Dim | None], extents: Sequence[Dim]) -> Dim | None:
    """How many elements, neighbours or the same one, follow each other; None when the first two are neither."""
    axes = [(step, extent) for step, extent in zip(steps, extents, strict=True) if extent != 1]
    if not axes:
        return 1
    (inner, length), *outer = reversed(axes)
    if inner not in (0, 1):
        return None
    extent = length
    for step, next_extent in outer:
        if not continues(step, inner, extent):
            break
        inner, extent, length = step, next_extent, product((length, next_extent))
    return length


def _layouts_of(node: Node, source: Layout) -> tuple[Layout, ...]:
    """Layouts of a node's outputs, given its input's; empty where strides can't express them."""
    op, shape = node.op, node.inputs[0].shape
    if isinstance(op, Reshape):
        strides = reshaped_strides(shape, source.strides, node.output.shape)
        return () if strides is None else (replace(source, strides=strides),)
    if isinstance(op, Permute):
        moved = [axis for axis in op.order if shape[axis] != 1]
        strides = tuple(source.strides[axis] for axis in op.order)
        return (replace(source, strides=strides, in_order=source.in_order and moved == sorted(moved)),)
    if isinstance(op, Split):
        starts = [sum(op.sizes[:index]) for index in range(len(op.sizes))]
        return tuple(
            replace(source, offset=settle(source.offset + start * source.strides[op.axis])) for start in starts
        )
    if isinstance(op, DynamicSlice):
        offset = sum((start * stride for start, stride in zip(op.starts, source.strides, strict=True)), source.offset)
        strides = tuple(product(pair) for pair in zip(op.steps, source.strides, strict=True))
        return (replace(source, offset=settle(offset), strides=strides),)
    if isinstance(op, Expand):
        return _expanded(shape, node.output.shape, source)
    if isinstance(op, IndexSelect) and is_constant(node.inputs[1]):
        return _selected(op.axis, node.inputs[1], shape, source)
    return ()


def _expanded(shape: Sequence[Dim], target: Sequence[Dim], source: Layout) -> tuple[Layout, ...]:
    """Repeated dims have stride 0; where only run time tells whether a dim is repeated, there is no layout."""
    own = target[len(target) - len(shape) :]
    if any(dim not in (1, extent) for dim, extent in zip(shape, own, strict=True)):
        return ()
    strides = (s if dim == extent else 0 for dim, extent, s in zip(shape, own, source.strides, strict=True))
    return (replace(source, strides=(*(0 for _ in range(len(target) - len(shape))), *strides)),)


def _selected(axis: int, indices: Value, shape: Sequence[Dim], source: Layout) -> tuple[Layout, ...]:
    """x[..., i, ...] for one constant i; an index that may lie outside is left to the kernel, which checks it."""
    if indices.data is None or indices.data.size != 1 or not is_static(shape[axis]):
        return ()
    index, size = int(indices.data.reshape(-1)[0]), int(shape[axis])
    if not -size <= index < size:
        return ()
    offset = settle(source.offset + index % size * source.strides[axis])
    strides = (*source.strides[:axis], *(0 for _ in indices.shape), *source.strides[axis + 1 :])
    return (replace(source, offset=offset, strides=strides),)


def reshaped_strides(shape: Sequence[Dim], strides: Sequence[Dim], target: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """Strides of a strided tensor after a reshape that moves nothing, or None when there are none."""
    have = [(dim, stride) for dim, stride in zip(shape, strides, strict=True) if dim != 1]
    want = [dim for dim in target if dim != 1]
    found: list[Dim] = []
    while have or want:
        match = _match(have, want)
        if match is None:
            return None
        taken, given = match
        dims, steps = zip(*have[:taken], strict=True)
        # Several dims become one, or one several: they lie in memory as if they were contiguous.
        if any(steps[i] != product((dims[i + 1], steps[i + 1])) for i in range(taken - 1)):
            return None
        found += [product((step, steps[-1])) for step in contiguous_strides(want[:given])]
        have, want = have[taken:], want[given:]
    rest = iter(found)
    return tuple(0 if dim == 1 else next(rest) for dim in target)


def _match(have: Sequence[tuple[Dim, Dim]], want: Sequence[Dim]) -> tuple[int, int] | None:
    """The fewest leading dims on both sides with the same number of elements, one dim on one of the sides."""
    for count in range(1, max(len(have), len(want)) + 1):
        if count <= len(want) and have and product(want[:count]) == have[0][0]:
            return 1, count
        if count <= len(have) and want and product([dim for dim, _ in have[:count]]) == want[0]:
            return count, 1
    return None
