"""Caches. A write reads its update through strides, and its output may be the memory of the past.

Exporters also write present = concatenate(past, new rows), which attention reads. A step of few queries reads the past
where it was given, so what it was copied to can go around the caches.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import sympy

from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import AppendedCache, EmitContext, KernelSpec, Param, Template, only_node, op_of
from ortisan.codegen.cpu.kernels.attention import heads_per_head
from ortisan.codegen.cpu.loops.boxes import bits
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.codegen.cpu.views import Views
from ortisan.codegen.expressions import contiguous_strides
from ortisan.codegen.literals import flag
from ortisan.codegen.strides import Layout, has_strides
from ortisan.registry.dims import Dim, product
from ortisan.registry.graph import Graph, Node, Value
from ortisan.registry.ops import Attention, CacheWrite, Concatenate

_CACHE_WRITE = Template("cache/cache_write", ("cache.h", "loops.h"))
_ROWS_AXIS = 2


@dataclass(frozen=True)
class CacheWriteContext:
    """`pieces` are the update's dims before the axis; a piece lies at `offset` and its indices times their strides."""

    params: tuple[Param, ...]
    type: str
    index_type: str
    shape: tuple[str, ...]
    """batch, outer, past, length, rows, inner"""
    pieces: tuple[str, ...]
    piece_strides: tuple[str, ...]
    offset: str
    row_stride: str
    circular: str
    start: str
    starts: str


def emit_cache_write(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, CacheWrite)
    past, update, *starts = node.inputs
    type_, printer, axis = bits(past.dtype), context.printer, op.axis
    layout = context.views.layout(update)
    outer, inner = product(past.shape[:axis]), product(past.shape[axis + 1 :])
    sizes = (past.shape[0], outer, past.shape[axis], node.output.shape[axis], update.shape[axis], inner)
    params = [Param("past", type_), Param("update", type_)]
    params += [Param("starts", value.dtype.cpp) for value in starts]
    params += [Param("out", type_, written=True), Param("outside", "char"), Param("overlapping", "char")]
    body = CacheWriteContext(
        tuple(params),
        type_,
        starts[0].dtype.cpp if starts else "int64_t",
        printer.all(sizes),
        printer.all(update.shape[:axis]),
        printer.all(layout.strides[:axis]),
        printer(layout.offset),
        printer(layout.strides[axis]),
        flag(op.mode == "circular"),
        printer(op.start),
        "starts" if starts else "nullptr",
    )
    where = f"node '{node.origin}'"
    outside = f"{where}: a row that is written lies outside the cache; start earlier or make the cache longer"
    overlapping = (
        f"{where}: the written cache overlaps the past in memory without being the same tensor; "
        "give it memory of its own, or the past's with the past's shape"
    )
    arguments = (
        *map(context.read, node.inputs),
        context.write(node.output),
        context.message(outside),
        context.message(overlapping),
    )
    return KernelSpec(_CACHE_WRITE, group.name, body, arguments)


def _reads(node: Node, value: Value, layout: Layout) -> bool:
    """The update's rows, wherever they are; the past and the starts where they lie contiguous."""
    if value in (node.inputs[0], *node.inputs[2:]):
        return False
    inner = op_of(node, CacheWrite).axis + 1
    return has_strides(value.shape[inner:], layout.strides[inner:], contiguous_strides(value.shape[inner:]))


def _may_be_as_long(node: Node) -> bool:
    """Whether a written cache is as long as the past, always or when nothing else asks for more rows.

    When both are the same memory, nothing but new rows is written. The kernel refuses memory that is shared in a run in
    which the cache is longer.
    """
    axis = op_of(node, CacheWrite).axis
    have, want = node.inputs[0].shape[axis], node.output.shape[axis]
    return have == want or (isinstance(want, sympy.Max) and have in want.args)


def appended_caches(graph: Graph, views: Views) -> dict[Value, AppendedCache]:
    """By the present. The past is an input of the graph, which stays as it is for the whole run."""
    readers: dict[Value, dict[Node, None]] = defaultdict(dict)
    others: set[Value] = set()
    for node in graph.nodes:
        for index, value in enumerate(node.inputs):
            if isinstance(node.op, Attention) and index in (1, 2):
                readers[value][node] = None
            else:
                others.add(value)
    return {
        node.output: AppendedCache(node.inputs[0], tuple(map(_sizes, readers[node.output])))
        for node in graph.nodes
        if node not in views.skipped
        and isinstance(node.op, Concatenate)
        and node.op.axis == _ROWS_AXIS
        and len(node.inputs) == 2
        and views.root(node.inputs[0]) in graph.inputs
        and views.layout(node.inputs[0]).strides[-1] == 1
        and readers[node.output]
        and node.output not in others
    }


def _sizes(attention: Node) -> tuple[Dim, Dim]:
    return attention.inputs[0].shape[2], heads_per_head(attention)


KERNELS = (CpuKernel(CacheWrite, emit_cache_write, (_CACHE_WRITE,), reads=_reads, shares=_may_be_as_long),)
