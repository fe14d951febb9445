"""Attention as one kernel. q, k and v are read, and the output written, through strides: no transposes."""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.cpu.expressions import contiguous_strides
from ortisan.codegen.cpu.fusion import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, literal
from ortisan.registry.dims import Dim
from ortisan.registry.graph import Value
from ortisan.registry.ops import Attention


@dataclass(frozen=True)
class AttentionContext:
    params: tuple[Param, ...]
    type: str
    shape: tuple[str, ...]
    """B, H, S, T, D, E"""
    strides: tuple[tuple[str, ...], ...]
    """(batch, head, row) of q, k, v and the output"""
    mask: str
    mask_strides: tuple[str, ...]
    scale: str
    empty_rows_zero: str


def emit_attention(group: Group, context: EmitContext) -> KernelSpec:
    node = group.nodes[0]
    op = node.op
    if not isinstance(op, Attention):
        raise TypeError(op.name)
    q, k, v = node.inputs[:3]
    printer, views, cpp = context.printer, context.views, q.dtype.cpp
    params = [Param("q", cpp), Param("k", cpp), Param("v", cpp)]
    mask_strides: tuple[str, ...] = ()
    if op.mask != "none":
        params.append(Param("mask", node.inputs[3].dtype.cpp))
        mask_strides = _mask_strides(node.inputs[3], (*q.shape[:3], k.shape[2]), context)
    params.append(Param("out", cpp, written=True))
    strides = [*(views.strides(value) for value in (q, k, v)), views.written_strides(node.output)]
    body = AttentionContext(
        tuple(params),
        cpp,
        printer.all((*q.shape[:3], k.shape[2], q.shape[3], v.shape[3])),
        tuple(printer.all(steps[:3]) for steps in strides),
        op.mask,
        mask_strides,
        literal(op.scale, q.dtype),
        "true" if op.empty_rows_zero else "false",
    )
    arguments = (*map(context.read, node.inputs), context.write(node.output))
    return KernelSpec("cpu/attention.cpp.j2", group.name, body, arguments)


def _mask_strides(mask: Value, scores: tuple[Dim, ...], context: EmitContext) -> tuple[str, ...]:
    """Four strides; 0 where the mask is broadcast."""
    aligned = (*(1 for _ in range(4 - len(mask.shape))), *mask.shape)
    result = []
    for dim, extent, stride in zip(aligned, scores, contiguous_strides(aligned), strict=True):
        printed = context.printer(stride)
        if dim == extent:
            result.append(printed)
        else:
            result.append("0" if dim == 1 else f"({context.printer(dim)} == 1 ? 0 : {printed})")
    return tuple(result)
