"""Attention as one kernel. q, k and v are read, and the output written, through strides: no transposes."""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, Template, only_node
from ortisan.codegen.cpu.row import CpuKernel, rows_of
from ortisan.codegen.expressions import DimPrinter
from ortisan.codegen.literals import flag, literal
from ortisan.codegen.strides import Layout
from ortisan.registry.dims import Dim, floor_div
from ortisan.registry.graph import Node, Value
from ortisan.registry.ops import Attention

_ATTENTION = Template("attention/attention", ("attention.h",), instance="attention/instance")


@dataclass(frozen=True)
class PastContext:
    """PastRows of k or v."""

    of: str
    offset: str
    strides: tuple[str, ...]
    rows: str


@dataclass(frozen=True)
class AttentionContext:
    params: tuple[Param, ...]
    type: str
    shape: tuple[str, ...]
    """B, H, S, T, D, E, group, causal, past"""
    offsets: tuple[str, ...]
    """of q, k, v and the output in what is passed for them"""
    strides: tuple[tuple[str, ...], ...]
    """(batch, head, row) of the same"""
    mask: str
    mask_offset: str
    mask_strides: tuple[str, ...]
    scale: str
    softcap: str
    rules: tuple[str, ...]
    """of hidden keys and empty rows: AttentionRules"""
    pasts: tuple[PastContext, ...]
    """where the first keys and the first values are too, if they are anywhere"""


def emit_attention(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Attention)
    q, k, v = node.inputs[:3]
    printer, views, cpp = context.printer, context.views, q.dtype.cpp
    params = [Param("q", cpp), Param("k", cpp), Param("v", cpp)]
    mask_offset = "0"
    mask_strides: tuple[str, ...] = ()
    if op.mask != "none":
        mask = node.inputs[3]
        params.append(Param("mask", mask.dtype.cpp))
        layout, scores = views.layout(mask), (*q.shape[:3], k.shape[2])
        mask_offset = printer(layout.offset)
        mask_strides = printer.broadcast_strides(mask.shape, scores, strides=layout.strides)
    cached = {name: context.appended[value].past for name, value in (("k", k), ("v", v)) if value in context.appended}
    params += [Param(f"{name}_past", cpp) for name in cached]
    params.append(Param("out", cpp, written=True))
    layouts = [*map(views.layout, (q, k, v)), Layout(0, views.written_strides(node.output))]
    body = AttentionContext(
        tuple(params),
        cpp,
        (
            *printer.all((*q.shape[:3], k.shape[2], q.shape[3], v.shape[3], heads_per_head(node))),
            *_causality(node, op, printer),
        ),
        printer.all([layout.offset for layout in layouts]),
        tuple(printer.all(layout.strides[:3]) for layout in layouts),
        "wide" if op.mask == "additive" and node.inputs[3].dtype is not q.dtype else op.mask,
        mask_offset,
        mask_strides,
        literal(op.scale, q.dtype),
        literal(op.softcap, q.dtype),
        (literal(op.hidden_logit, q.dtype), flag(op.empty_rows_zero), flag(op.nan_rows_zero)),
        tuple(_past(name, value, context) for name, value in cached.items()),
    )
    arguments = (*map(context.read, (*node.inputs, *cached.values())), context.write(node.output))
    return KernelSpec(_ATTENTION, group.name, body, arguments)


def heads_per_head(node: Node) -> Dim:
    """How many query heads of an attention share one head of keys and values."""
    q, k = node.inputs[:2]
    return 1 if q.shape[1] == k.shape[1] else floor_div(q.shape[1], k.shape[1])


def _past(name: str, value: Value, context: EmitContext) -> PastContext:
    layout, printer = context.views.layout(value), context.printer
    return PastContext(name, printer(layout.offset), printer.all(layout.strides[:3]), printer(value.shape[2]))


def _causality(node: Node, op: Attention, printer: DimPrinter) -> tuple[str, str]:
    queries, keys = node.inputs[0].shape[2], node.inputs[1].shape[2]
    past = keys - queries if op.causal == "lower_right" else 0
    return flag(op.causal != "none"), printer(past)


def _reads(node: Node, value: Value, layout: Layout) -> bool:
    """Rows of q, k and v; of the mask elements."""
    return value not in node.inputs[:3] or rows_of(node, value, layout)


KERNELS = (CpuKernel(Attention, emit_attention, (_ATTENTION,), reads=_reads, writes_rows=True),)
