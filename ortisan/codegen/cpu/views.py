"""Values that are another value's memory: reshapes, and permutes that attention reads or writes through strides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ortisan.codegen.cpu.expressions import contiguous_strides
from ortisan.registry.dims import Dim
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import Attention, Permute


class Views:
    """`root` is the value whose memory a value lives in; `skipped` nodes run no kernel."""

    def __init__(self, graph: Graph) -> None:
        self.skipped: set[Node] = set()
        self._source: dict[Value, Value] = {}
        self._order: dict[Value, tuple[int, ...]] = {}
        self._written: dict[Value, Node] = {}
        for node in graph.nodes:
            if node.op.view:
                self._alias(node.output, node.inputs[0], node)
        self._fold_permutes(graph)

    def _alias(self, value: Value, source: Value, node: Node) -> None:
        self.skipped.add(node)
        self._source[value] = source

    def root(self, value: Value) -> Value:
        while value in self._source:
            value = self._source[value]
        return value

    def _fold_permutes(self, graph: Graph) -> None:
        uses = Counter(value for node in graph.nodes for value in node.inputs)
        uses.update(graph.outputs)
        read = Counter(v for n in graph.nodes if isinstance(n.op, Attention) for v in n.inputs[:3])
        producer = {value: node for node in graph.nodes for value in node.outputs}
        for node in graph.nodes:
            if not isinstance(node.op, Permute) or node.op.order[-1] != len(node.op.order) - 1:
                continue
            if uses[node.output] == read[node.output] > 0:
                self._order[node.output] = node.op.order
                self._alias(node.output, node.inputs[0], node)
                continue
            source = producer.get(node.inputs[0])
            if source is not None and isinstance(source.op, Attention) and uses[source.output] == 1:
                # The attention writes in the permuted order, straight into the permute's output.
                self._written[source.output] = node
                self._alias(source.output, node.output, node)

    def strides(self, value: Value) -> tuple[Dim, ...]:
        """Strides under which an attention reads its operand, in elements."""
        order = self._order.get(value)
        if order is None:
            return contiguous_strides(value.shape)
        return _permuted_strides(self._source[value].shape, order)

    def written_strides(self, value: Value) -> tuple[Dim, ...]:
        """Strides under which an attention writes its output."""
        permute = self._written.get(value)
        if permute is None or not isinstance(permute.op, Permute):
            return contiguous_strides(value.shape)
        strides = contiguous_strides(permute.output.shape)
        order = permute.op.order
        return tuple(strides[order.index(axis)] for axis in range(len(order)))


def _permuted_strides(shape: Sequence[Dim], order: Sequence[int]) -> tuple[Dim, ...]:
    strides = contiguous_strides(shape)
    return tuple(strides[axis] for axis in order)
