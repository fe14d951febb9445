"""Writes into a cache. The update is read through strides; the output may be the memory of the past."""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.cpu.fuse import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, only_node
from ortisan.codegen.cpu.kernels.move import bits
from ortisan.registry.dims import product
from ortisan.registry.ops import CacheWrite


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
        "true" if op.mode == "circular" else "false",
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
    return KernelSpec("cpu/cache_write.cpp.j2", group.name, body, arguments)
