"""Reads by index: index_select, gather, gather_nd. An index outside the range is a failure with the node's name."""

from __future__ import annotations

from dataclasses import replace

from ortisan.codegen.cpu.call import CallContext, call_of
from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, only_node, op_of
from ortisan.codegen.cpu.loops.boxes import bits
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.codegen.strides import Layout
from ortisan.registry.builder import is_constant
from ortisan.registry.dims import is_static, product, settle
from ortisan.registry.graph import Node
from ortisan.registry.ops import Gather, GatherNd, IndexSelect

_CALL = call_of("gather.h")


def _spec(group: Group, context: EmitContext, function: str, *sizes: str | tuple[str, ...]) -> KernelSpec:
    """`function<T, I>(c, sizes, x, indices, y, message)`."""
    node = group.nodes[0]
    x, indices = node.inputs
    types = bits(x.dtype), indices.dtype.cpp
    params = (
        Param("x", types[0]),
        Param("indices", types[1]),
        Param("y", types[0], written=True),
        Param("message", "char"),
    )
    message = context.message(f"node '{node.origin}': an index is outside the range of the dim it selects from")
    arguments = (context.read(x), context.read(indices), context.write(node.output), message)
    body = CallContext(params, function, types, (*sizes, "x", "indices", "y", "message"))
    return KernelSpec(_CALL, group.name, body, arguments)


def emit_index_select(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, IndexSelect)
    x, indices = node.inputs
    sizes = product(x.shape[: op.axis]), x.shape[op.axis], product(x.shape[op.axis + 1 :]), product(indices.shape)
    return _spec(group, context, "gather", *context.printer.all(sizes))


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


def emit_gather(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Gather)
    have, want = (context.printer.all(value.shape) for value in node.inputs)
    return _spec(group, context, "gather_elements", str(len(want)), str(op.axis), have, want)


def emit_gather_nd(group: Group, context: EmitContext) -> KernelSpec:
    """Per batch, coordinates of `depth` numbers into [*extents, inner]."""
    node, op = only_node(group, GatherNd)
    x, indices = node.inputs
    begin, depth, printer = op.batch_dims, indices.shape[-1], context.printer
    batches, per_batch = product(indices.shape[:begin]), product(indices.shape[begin:-1])
    extents, inner = printer.all(x.shape[begin : begin + depth]), printer(product(x.shape[begin + depth :]))
    return _spec(group, context, "gather_nd", printer(batches), printer(per_batch), str(len(extents)), extents, inner)


KERNELS = (
    CpuKernel(Gather, emit_gather, (_CALL,), table=True),
    CpuKernel(GatherNd, emit_gather_nd, (_CALL,), table=True),
    CpuKernel(IndexSelect, emit_index_select, (_CALL,), layouts=_selected, table=True),
)
