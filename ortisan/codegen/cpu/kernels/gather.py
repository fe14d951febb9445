"""Reads by index: index_select, gather, gather_nd. An index outside the range is a failure with the node's name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, Template, only_node, op_of
from ortisan.codegen.cpu.loops.boxes import bits
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.codegen.cpu.strides import Layout
from ortisan.registry.builder import is_constant
from ortisan.registry.dims import is_static, product, settle
from ortisan.registry.graph import Node
from ortisan.registry.ops import Gather, GatherNd, IndexSelect

_INDEX_SELECT = Template("gather/index_select", ("gather.h",))
_GATHER = Template("gather/gather", ("gather.h",))
_GATHER_ND = Template("gather/gather_nd", ("gather.h",))


def _params(group: Group) -> tuple[Param, ...]:
    x, indices = group.nodes[0].inputs
    type_ = bits(x.dtype)
    return (
        Param("x", type_),
        Param("indices", indices.dtype.cpp),
        Param("y", type_, written=True),
        Param("message", "char"),
    )


def _spec(template: Template, group: Group, context: EmitContext, body: object) -> KernelSpec:
    node = group.nodes[0]
    message = context.message(f"node '{node.origin}': an index is outside the range of the dim it selects from")
    arguments = (*map(context.read, node.inputs), context.write(node.output), message)
    return KernelSpec(template, group.name, body, arguments)


@dataclass(frozen=True)
class IndexSelectContext:
    params: tuple[Param, ...]
    type: str
    index_type: str
    outer: str
    axis_size: str
    inner: str
    count: str


def emit_index_select(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, IndexSelect)
    x, indices = node.inputs
    axis, printer = op.axis, context.printer
    body = IndexSelectContext(
        _params(group),
        bits(x.dtype),
        indices.dtype.cpp,
        printer(product(x.shape[:axis])),
        printer(x.shape[axis]),
        printer(product(x.shape[axis + 1 :])),
        printer(product(indices.shape)),
    )
    return _spec(_INDEX_SELECT, group, context, body)


def _selected(node: Node, source: Layout) -> tuple[Layout, ...]:
    """x[..., i, ...] for one constant i; an index that may lie outside is left to the kernel, which checks it."""
    axis, (x, indices) = op_of(node, IndexSelect).axis, node.inputs
    if not is_constant(indices) or indices.data is None or indices.data.size != 1 or not is_static(x.shape[axis]):
        return ()
    index, size = int(indices.data.reshape(-1)[0]), int(x.shape[axis])
    if not -size <= index < size:
        return ()
    offset = settle(source.offset + index % size * source.strides[axis])
    strides = (*source.strides[:axis], *(0 for _ in indices.shape), *source.strides[axis + 1 :])
    return (replace(source, offset=offset, strides=strides),)


@dataclass(frozen=True)
class GatherContext:
    params: tuple[Param, ...]
    type: str
    index_type: str
    axis: int
    extents: tuple[str, ...]
    source_extents: tuple[str, ...]


def emit_gather(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Gather)
    x, indices = node.inputs
    body = GatherContext(
        _params(group),
        bits(x.dtype),
        indices.dtype.cpp,
        op.axis,
        context.printer.all(indices.shape),
        context.printer.all(x.shape),
    )
    return _spec(_GATHER, group, context, body)


@dataclass(frozen=True)
class GatherNdContext:
    """[batches, per_batch] coordinates of `depth` numbers into [batches, *extents, inner]."""

    params: tuple[Param, ...]
    type: str
    index_type: str
    batches: str
    per_batch: str
    extents: tuple[str, ...]
    inner: str


def emit_gather_nd(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, GatherNd)
    x, indices = node.inputs
    batch_dims, depth, printer = op.batch_dims, indices.shape[-1], context.printer
    body = GatherNdContext(
        _params(group),
        bits(x.dtype),
        indices.dtype.cpp,
        printer(product(indices.shape[:batch_dims])),
        printer(product(indices.shape[batch_dims:-1])),
        printer.all(x.shape[batch_dims : batch_dims + depth]),
        printer(product(x.shape[batch_dims + depth :])),
    )
    return _spec(_GATHER_ND, group, context, body)


KERNELS = (
    CpuKernel(Gather, emit_gather, (_GATHER,), table=True),
    CpuKernel(GatherNd, emit_gather_nd, (_GATHER_ND,), table=True),
    CpuKernel(IndexSelect, emit_index_select, (_INDEX_SELECT,), layouts=_selected, table=True),
)
