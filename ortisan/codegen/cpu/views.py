"""Values that are another value's memory: reshapes, and what attention reads or writes through strides.

Attention reads its operands and its mask with any strides, so the reshapes, permutes, splits, slices, selections and
expansions before it move nothing: their results are layouts of the memory they come from. The same
holds before rotary and before the update of a cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ortisan.codegen.cpu.expressions import contiguous_strides
from ortisan.registry.builder import is_constant
from ortisan.registry.dims import Dim, is_static, product
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import (
    Attention,
    CacheWrite,
    DynamicSlice,
    Expand,
    IndexSelect,
    Permute,
    Reshape,
    Rotary,
    Split,
)


@dataclass(frozen=True)
class Layout:
    """Where the elements of a value lie in the memory of another, in elements."""

    offset: Dim
    strides: tuple[Dim, ...]


class Views:
    """`root` is the value whose memory a value lives in; `skipped` nodes run no kernel."""

    def __init__(self, graph: Graph) -> None:
        self.skipped: set[Node] = set()
        self._source: dict[Value, Value] = {}
        self._layouts: dict[Value, Layout] = {}
        self._written: dict[Value, Node] = {}
        users: dict[Value, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            for value in node.inputs:
                users[value].append(node)
        self._fold_reads(graph, users)
        for node in graph.nodes:
            if node.op.view and node not in self.skipped:
                self._alias(node.output, node.inputs[0], node)
        self._fold_writes(graph, users)

    def _alias(self, value: Value, source: Value, node: Node) -> None:
        self.skipped.add(node)
        self._source[value] = source

    def root(self, value: Value) -> Value:
        while value in self._source:
            value = self._source[value]
        return value

    def _fold_reads(self, graph: Graph, users: dict[Value, list[Node]]) -> None:
        """Skips the nodes whose results are read through strides only, where strides can express them."""
        kept = set(graph.outputs)
        expressible = self._find_layouts(graph, set(graph.nodes))
        folded: set[Node] = set()
        for node in reversed(graph.nodes):
            if all(
                value in expressible
                and value not in kept
                and users[value]
                and all(user in folded or _reads(user, value, expressible[value]) for user in users[value])
                for value in node.outputs
            ):
                folded.add(node)
        self._layouts = self._find_layouts(graph, folded)
        for node in folded:
            for value in node.outputs:
                self._alias(value, node.inputs[0], node)

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


def _reads(user: Node, value: Value, layout: Layout) -> bool:
    """Whether a node can read a value that lies so: rows of operands must be contiguous, those of masks need not."""
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
    return False


def _layouts_of(node: Node, source: Layout) -> tuple[Layout, ...]:
    """Layouts of a node's outputs, given its input's; empty where strides can't express them."""
    op, shape = node.op, node.inputs[0].shape
    if isinstance(op, Reshape):
        strides = reshaped_strides(shape, source.strides, node.output.shape)
        return () if strides is None else (Layout(source.offset, strides),)
    if isinstance(op, Permute):
        return (Layout(source.offset, tuple(source.strides[axis] for axis in op.order)),)
    if isinstance(op, Split):
        starts = [sum(op.sizes[:index]) for index in range(len(op.sizes))]
        return tuple(Layout(source.offset + start * source.strides[op.axis], source.strides) for start in starts)
    if isinstance(op, DynamicSlice):
        offset = sum((start * stride for start, stride in zip(op.starts, source.strides, strict=True)), source.offset)
        return (Layout(offset, tuple(step * s for step, s in zip(op.steps, source.strides, strict=True))),)
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
    return (Layout(source.offset, (*(0 for _ in range(len(target) - len(shape))), *strides)),)


def _selected(axis: int, indices: Value, shape: Sequence[Dim], source: Layout) -> tuple[Layout, ...]:
    """x[..., i, ...] for one constant i; an index that may lie outside is left to the kernel, which checks it."""
    if indices.data is None or indices.data.size != 1 or not is_static(shape[axis]):
        return ()
    index, size = int(indices.data.reshape(-1)[0]), int(shape[axis])
    if not -size <= index < size:
        return ()
    offset = source.offset + index % size * source.strides[axis]
    strides = (*source.strides[:axis], *(0 for _ in indices.shape), *source.strides[axis + 1 :])
    return (Layout(offset, strides),)


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
