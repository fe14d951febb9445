"""Data movement. Most of it is strided copies; a reshape moves nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ortisan.codegen.cpu.call import CallContext, call_of
from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import Argument, EmitContext, KernelSpec, Param, Template, only_node, op_of
from ortisan.codegen.cpu.loops.boxes import COPY, Box, CopyContext, bits, box
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.codegen.expressions import contiguous_strides
from ortisan.codegen.layouts import expanded, permuted, reshaped, sliced, split, starts_of
from ortisan.codegen.literals import flag
from ortisan.codegen.strides import Layout, contiguous, line_length, walk
from ortisan.registry.dims import Dim, is_static, maximum, minimum, product, settle
from ortisan.registry.graph import Node, Value
from ortisan.registry.ops import Concatenate, DynamicSlice, Expand, Pad, Permute, Reshape, Split, Trilu

_PAD = call_of("pad.h")
_TRILU = call_of("trilu.h")


def _reads_lines(node: Node, value: Value, layout: Layout) -> bool:
    """Lines: elements along the last axis that are neighbours, or one repeated."""
    return line_length(walk(value.shape, value.shape, layout.strides), value.shape) is not None


def _row_strides(node: Node) -> tuple[Dim, ...] | None:
    """A permute that leaves the last axis where it is reorders rows."""
    order, strides = op_of(node, Permute).order, contiguous_strides(node.output.shape)
    last = len(order) - 1
    return tuple(strides[order.index(axis)] for axis in range(last + 1)) if order[-1] == last else None


def _copies(layouts: Callable[[Node, Layout], tuple[Layout, ...]]) -> Callable[[Group, EmitContext], KernelSpec]:
    """The emitter that copies each output that is wanted from where it lies in the input's memory."""

    def emit(group: Group, context: EmitContext) -> KernelSpec:
        (node,) = group.nodes
        type_ = bits(node.inputs[0].dtype)
        params, arguments, boxes = [Param("in0", type_)], [context.read(node.inputs[0])], []
        found = layouts(node, context.views.layout(node.inputs[0]))
        for index, (source, output) in enumerate(zip(found, node.outputs, strict=True)):
            if output in group.outputs:
                names, target = ("in0", f"out{index}"), contiguous(output.shape)
                boxes.append(box(context, output.shape, source=source, target=target, names=names))
                params.append(Param(names[1], type_, written=True))
                arguments.append(context.write(output))
        return KernelSpec(COPY, group.name, CopyContext(tuple(params), type_, tuple(boxes)), tuple(arguments))

    return emit


def _copy(group: Group, context: EmitContext, boxes: Sequence[Box], reads: int = 1) -> KernelSpec:
    node = group.nodes[0]
    type_ = bits(node.inputs[0].dtype)
    params = (*(Param(f"in{i}", type_) for i in range(reads)), Param("out0", type_, written=True))
    arguments = (*map(context.read, node.inputs[:reads]), context.write(node.output))
    return KernelSpec(COPY, group.name, CopyContext(params, type_, tuple(boxes)), arguments)


def emit_expand(group: Group, context: EmitContext) -> KernelSpec:
    node, _ = only_node(group, Expand)
    shape, have = node.output.shape, node.inputs[0].shape
    layout, whole = context.views.layout(node.inputs[0]), contiguous(shape)
    copied = box(context, shape, source=replace(whole, offset=layout.offset), target=whole)
    strides = context.printer.broadcast_strides(have, shape, strides=layout.strides)
    return _copy(group, context, [replace(copied, src_strides=strides)])


def emit_concatenate(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Concatenate)
    strides = contiguous_strides(node.output.shape)
    boxes = []
    starts = starts_of([value.shape[op.axis] for value in node.inputs])
    for index, (start, value) in enumerate(zip(starts, node.inputs, strict=True)):
        target = Layout(settle(start * strides[op.axis]), strides)
        names = (f"in{index}", "out0")
        boxes.append(box(context, value.shape, source=context.views.layout(value), target=target, names=names))
    spec = _copy(group, context, boxes, reads=len(node.inputs))
    return replace(spec, context=replace(spec.context, streamed=_streamed(node, context)))


def _streamed(node: Node, context: EmitContext) -> str:
    """When no attention reads the past from here, in C++."""
    cache = context.appended.get(node.output)
    if cache is None:
        return "false"
    return " && ".join(f"is_thin({', '.join(context.printer.all(sizes))})" for sizes in dict.fromkeys(cache.sizes))


def emit_pad(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Pad)
    x = node.inputs[0]
    if op.mode == "constant":
        return _constant_pad(group, context, op)
    extents = map(context.printer.all, (x.shape, op.before, node.output.shape))
    return _call(_PAD, group, context, "pad_nd", str(len(x.shape)), *extents, f"PadMode::{op.mode}")


def _call(
    template: Template, group: Group, context: EmitContext, function: str, *sizes: str | tuple[str, ...]
) -> KernelSpec:
    """`function<T>(c, sizes, in0, out0)`."""
    node = group.nodes[0]
    type_ = bits(node.output.dtype)
    params = (Param("in0", type_), Param("out0", type_, written=True))
    body = CallContext(params, function, (type_,), (*sizes, "in0", "out0"))
    return KernelSpec(template, group.name, body, (context.read(node.inputs[0]), context.write(node.output)))


def _constant_pad(group: Group, context: EmitContext, op: Pad) -> KernelSpec:
    """A fill, then the part of the input that stays, copied to its place."""
    node = group.nodes[0]
    x, shape = node.inputs[0], node.output.shape
    source, target = contiguous(x.shape), contiguous(shape)
    extents, src_offset, dst_offset = [], 0, 0
    for axis, before in enumerate(op.before):
        crop, shift = (
            (maximum(-before, 0), maximum(before, 0)) if not is_static(before) else (max(-before, 0), max(before, 0))
        )
        extents.append(maximum(minimum(x.shape[axis] - crop, shape[axis] - shift), 0))
        src_offset = settle(src_offset + crop * source.strides[axis])
        dst_offset = settle(dst_offset + shift * target.strides[axis])
    source, target = replace(source, offset=src_offset), replace(target, offset=dst_offset)
    spec = _copy(group, context, [box(context, extents, source=source, target=target)])
    count = context.printer(product(shape))
    if len(node.inputs) == 1:
        return replace(spec, context=replace(spec.context, fill="zero", fill_count=count))
    params = (*spec.context.params, Param("value", spec.context.type))
    filled = replace(spec.context, params=params, fill="value", fill_count=count)
    arguments: tuple[Argument, ...] = (*spec.arguments, context.read(node.inputs[1]))
    return replace(spec, context=filled, arguments=arguments)


def emit_trilu(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Trilu)
    *batch, rows, columns = node.output.shape
    sizes = context.printer.all((product(batch), rows, columns))
    return _call(_TRILU, group, context, "trilu", *sizes, str(op.k), flag(op.upper))


KERNELS = (
    CpuKernel(Concatenate, emit_concatenate, (COPY,), reads=_reads_lines),
    CpuKernel(DynamicSlice, _copies(sliced), (COPY,), reads=_reads_lines, layouts=sliced),
    CpuKernel(Expand, emit_expand, (COPY,), reads=_reads_lines, layouts=expanded),
    CpuKernel(Pad, emit_pad, (COPY, _PAD)),
    CpuKernel(Permute, _copies(permuted), (COPY,), reads=_reads_lines, layouts=permuted, row_strides=_row_strides),
    CpuKernel(Reshape, None, layouts=reshaped),
    CpuKernel(Split, _copies(split), (COPY,), reads=_reads_lines, layouts=split),
    CpuKernel(Trilu, emit_trilu, (_TRILU,)),
)
