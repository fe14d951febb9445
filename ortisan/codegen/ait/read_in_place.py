"""Attention, rotary embeddings and caches read where products wrote; attention writes as the next product reads.

    product -> split -> reshape -> permute -> attention -> permute -> reshape -> product
    product -> strided attention -> reshape -> product

Moves whose result lies in the memory that they read, under other strides, are left to the kernel. Keys behind a past
are read in two parts, so that they are joined only where the model gives them away, in one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ortisan.codegen.ait.strided import Strided, repeated
from ortisan.codegen.ait.strided_ops import (
    HEADS_AND_ROWS,
    StridedAttention,
    StridedCacheWrite,
    StridedRotary,
    StridedRows,
)
from ortisan.codegen.layouts import LAYOUTS
from ortisan.codegen.strides import Layout, contiguous
from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import Attention, CacheWrite, Concatenate, Permute, Rotary
from ortisan.registry.passes.rewrite import Rule, run_pass

_KEYS = 2
"""The axis of keys and values along which their parts follow each other."""

IsOurs = Callable[[Node], bool]


def read_in_place(graph: Graph, is_ours: IsOurs) -> Graph:
    """`is_ours` tells the nodes that a kernel of ours computes."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node)
    rows_first = {
        value
        for value, nodes in readers.items()
        if value not in graph.outputs
        and all(isinstance(node.op, Permute) and node.op.order == HEADS_AND_ROWS for node in nodes)
    }
    return run_pass("read_in_place", graph, _ReadInPlace(is_ours, rows_first))


class _ReadInPlace(Rule):
    def __init__(self, is_ours: IsOurs, rows_first: set[Value]) -> None:
        self._is_ours = is_ours
        self._rows_first = rows_first
        self._joined: dict[Value, tuple[Value, ...]] = {}
        """Keys and values behind a past -> the past and the new ones."""

    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if isinstance(node.op, Concatenate) and _adds_rows(node.op, node):
            made = _rows_of_both(b, inputs) or b.add(node.op, *inputs)
            self._joined[made] = inputs
            return [made]
        if isinstance(node.op, Attention) and self._is_ours(node):
            parts = [self._joined.get(value, (value,)) for value in inputs[1:3]]
            y = _attention(b, node.op, inputs, parts, rows_first=node.output in self._rows_first)
            return [b.permute(y, HEADS_AND_ROWS) if node.output in self._rows_first else y]
        if isinstance(node.op, Rotary) and self._is_ours(node):
            return [_rotary(b, node.op, inputs)]
        if isinstance(node.op, CacheWrite) and node.op.axis == _KEYS and len(node.output.shape) == 4:
            return [_cache_write(b, node.op, inputs)]
        before = b.producer(inputs[0]) if isinstance(node.op, Permute) else None
        if before is not None and isinstance(node.op, Permute) and isinstance(before.op, Permute):
            first = before.op.order
            return [b.permute(before.inputs[0], [first[axis] for axis in node.op.order])]
        return None


def _adds_rows(op: Concatenate, node: Node) -> bool:
    """Whether [B,K,P,D] and [B,K,N,D] are joined, a past and new rows."""
    return op.axis == _KEYS and len(node.inputs) == 2 and len(node.output.shape) == 4


def _rows_of_both(b: Builder, inputs: Sequence[Value]) -> Value | None:
    """Both parts where they lie, if one of them is not whole."""
    if all(_lies(b, value)[0] is value for value in inputs):
        return None
    sources: dict[Value, int] = {}
    return b.add(StridedRows(tuple(_rows(b, value, sources) for value in inputs)), *sources)


def _attention(
    b: Builder, op: Attention, inputs: Sequence[Value], in_parts: Sequence[Sequence[Value]], *, rows_first: bool
) -> Value:
    q, k, v = inputs[:3]
    lengths = [[part.shape[_KEYS] for part in parts] for parts in in_parts]
    keys, values = in_parts if lengths[0] == lengths[1] else ((k,), (v,))
    sources: dict[Value, int] = {}
    strided = StridedAttention(
        op,
        _rows(b, q, sources),
        tuple(_rows(b, part, sources) for part in keys),
        tuple(_rows(b, part, sources) for part in values),
        _shown(b, inputs[3], (*q.shape[:3], k.shape[_KEYS]), sources) if op.mask != "none" else None,
        rows_first,
    )
    return b.add(strided, *sources)


def _cache_write(b: Builder, op: CacheWrite, inputs: Sequence[Value]) -> Value:
    """The past stays an input of its own, since the result may be its memory."""
    past, update, *starts = inputs
    sources: dict[Value, int] = {}
    rows = replace(_rows(b, update, sources), source=1)
    return b.add(StridedCacheWrite(op, rows), past, *sources, *starts)


def _rotary(b: Builder, op: Rotary, inputs: Sequence[Value]) -> Value:
    x, *tables = inputs
    sources: dict[Value, int] = {}
    rows = _rows(b, x, sources)
    cos, sin = (_shown(b, table, (*x.shape[:3], table.shape[-1]), sources) for table in tables)
    return b.add(StridedRotary(op, rows, cos, sin), *sources)


def _rows(b: Builder, value: Value, sources: dict[Value, int]) -> Strided:
    """Rows whose elements are adjacent, wherever they are."""
    root, layout = _lies(b, value)
    if value.shape[3] != 1 and layout.strides[3] != 1:
        root, layout = value, contiguous(value.shape)
    return Strided(sources.setdefault(root, len(sources)), layout.offset, value.shape, layout.strides)


def _lies(b: Builder, value: Value) -> tuple[Value, Layout]:
    """In which value's memory this one lies, and how."""
    node = b.producer(value)
    lay = None if node is None else LAYOUTS.get(type(node.op))
    if node is not None and lay is not None:
        root, source = _lies(b, node.inputs[0])
        found = lay(node, source)
        if found:
            return root, found[node.outputs.index(value)]
    return value, contiguous(value.shape)


def _shown(b: Builder, value: Value, shape: Sequence[Dim], sources: dict[Value, int]) -> Strided:
    """A mask or a table in a larger shape."""
    root, layout = _lies(b, value)
    source = sources.setdefault(root, len(sources))
    return repeated(source, layout.offset, value.shape, layout.strides, tuple(shape))
