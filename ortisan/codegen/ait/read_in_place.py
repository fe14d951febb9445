"""Attention reads its operands where products wrote them, and writes what the next product reads.

    product -> split -> reshape -> permute -> attention -> permute -> reshape -> product
    product -> strided attention -> reshape -> product

Moves whose result lies in the memory that they read, under other strides, are left to the kernel. Keys behind a past
are read in two parts, so that they are joined only where the model gives them away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import sympy

from ortisan.codegen.ait.strided_attention import HEADS_AND_ROWS, Strided, StridedAttention
from ortisan.codegen.layouts import LAYOUTS
from ortisan.codegen.strides import Layout, contiguous
from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, product, settle
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import Attention, Concatenate, Permute
from ortisan.registry.passes.rewrite import Rule, run_pass

_KEYS = 2
"""The axis of keys and values along which their parts follow each other."""

IsOurs = Callable[[Node], bool]


def read_in_place(graph: Graph, is_ours: IsOurs) -> Graph:
    """`is_ours` tells the attentions that our kernel computes."""
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

    def node(self, b: Builder, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if isinstance(node.op, Attention) and self._is_ours(node):
            y = _strided(b, node.op, inputs, rows_first=node.output in self._rows_first)
            return [b.permute(y, HEADS_AND_ROWS) if node.output in self._rows_first else y]
        before = b.producer(inputs[0]) if isinstance(node.op, Permute) else None
        if before is not None and isinstance(node.op, Permute) and isinstance(before.op, Permute):
            first = before.op.order
            return [b.permute(before.inputs[0], [first[axis] for axis in node.op.order])]
        return None


def _strided(b: Builder, op: Attention, inputs: Sequence[Value], *, rows_first: bool) -> Value:
    sources: dict[Value, int] = {}
    q, k, v = inputs[:3]
    parts = [[_rows(b, part, sources) for part in _parts(b, value)] for value in (k, v)]
    if len(parts[0]) != len(parts[1]) or parts[0][0].shape[_KEYS] != parts[1][0].shape[_KEYS]:
        parts = [[_rows(b, k, sources)], [_rows(b, v, sources)]]
    query = _rows(b, q, sources)
    mask = None
    if op.mask != "none":
        mask = _mask(b, inputs[3], (*q.shape[:3], k.shape[_KEYS]), sources)
    used = dict.fromkeys(part.source for part in (query, *parts[0], *parts[1], *([] if mask is None else [mask])))
    places = {source: place for place, source in enumerate(used)}
    moved = [_moved(part, places) for part in (query, *parts[0], *parts[1])]
    count = len(parts[0])
    strided = StridedAttention(
        op,
        moved[0],
        tuple(moved[1 : 1 + count]),
        tuple(moved[1 + count :]),
        None if mask is None else _moved(mask, places),
        rows_first,
    )
    values = list(sources)
    return b.add(strided, *(values[source] for source in used))


def _parts(b: Builder, value: Value) -> Sequence[Value]:
    node = b.producer(value)
    joined = node is not None and isinstance(node.op, Concatenate) and node.op.axis % 4 == _KEYS
    return node.inputs if node is not None and joined and len(node.inputs) == 2 else (value,)


def _moved(part: Strided, places: Mapping[int, int]) -> Strided:
    return Strided(places[part.source], part.offset, part.shape, part.strides)


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


def _mask(b: Builder, mask: Value, logits: Sequence[Dim], sources: dict[Value, int]) -> Strided:
    """The mask in the logits' shape; a dim of 1 is repeated, also one that turns out to be 1."""
    root, layout = _lies(b, mask)
    missing = len(logits) - len(mask.shape)
    pairs = zip(mask.shape, logits[missing:], layout.strides, strict=True)
    strides = [_repeated(dim, extent, stride) for dim, extent, stride in pairs]
    return Strided(sources.setdefault(root, len(sources)), layout.offset, tuple(logits), (*(0,) * missing, *strides))


def _repeated(dim: Dim, extent: Dim, stride: Dim) -> Dim:
    if dim in (1, extent):
        return stride if dim == extent else 0
    return settle(product((sympy.Min(1, dim - 1), stride)))
