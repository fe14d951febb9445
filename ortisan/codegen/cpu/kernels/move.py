"""Data movement as strided copies: permute, expand, dynamic_slice, split, concatenate, pad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ortisan.codegen.cpu.fuse import Group
from ortisan.codegen.cpu.kernel import Argument, EmitContext, KernelSpec, Param, only_node
from ortisan.codegen.expressions import contiguous_strides
from ortisan.registry.dims import Dim, is_static, maximum, minimum, product, settle
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node
from ortisan.registry.ops import Concatenate, DynamicSlice, Expand, Pad, Permute, Split

_BITS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}


def bits(dtype: DType) -> str:
    """The unsigned type of the element's size: moves don't look at the elements."""
    return _BITS[dtype.size]


@dataclass(frozen=True)
class Box:
    """dst[dst_offset + i . dst_strides] = src[src_offset + i . src_strides] for all i below the extents."""

    src: str
    dst: str
    extents: tuple[str, ...]
    src_offset: str
    src_strides: tuple[str, ...]
    dst_offset: str
    dst_strides: tuple[str, ...]


@dataclass(frozen=True)
class CopyContext:
    """Boxes copied one after the other; with `fill` the whole output is first set to *fill (or zero).

    Where `streamed` holds in a run, the copies go around the caches.
    """

    params: tuple[Param, ...]
    type: str
    boxes: tuple[Box, ...]
    fill: str = ""
    fill_count: str = "0"
    streamed: str = "false"


def _box(
    context: EmitContext,
    extents: Sequence[Dim],
    *,
    src: tuple[Dim, Sequence[Dim]],
    dst: tuple[Dim, Sequence[Dim]],
    names: tuple[str, str] = ("in0", "out0"),
) -> Box:
    printer = context.printer
    return Box(*names, printer.all(extents), printer(src[0]), printer.all(src[1]), printer(dst[0]), printer.all(dst[1]))


def _spec(group: Group, context: EmitContext, boxes: Sequence[Box], reads: int = 1, writes: int = 1) -> KernelSpec:
    node = group.nodes[0]
    type_ = bits(node.inputs[0].dtype)
    params = [Param(f"in{i}", type_) for i in range(reads)]
    params += [Param(f"out{i}", type_, written=True) for i in range(writes)]
    arguments = [context.read(value) for value in node.inputs[:reads]]
    arguments += [context.write(value) for value in node.outputs[:writes]]
    return KernelSpec("cpu/copy.cpp.j2", group.name, CopyContext(tuple(params), type_, tuple(boxes)), tuple(arguments))


def emit_permute(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Permute)
    layout = context.views.layout(node.inputs[0])
    shape = node.output.shape
    source = (layout.offset, [layout.strides[axis] for axis in op.order])
    return _spec(group, context, [_box(context, shape, src=source, dst=(0, contiguous_strides(shape)))])


def emit_expand(group: Group, context: EmitContext) -> KernelSpec:
    node, _ = only_node(group, Expand)
    shape, have = node.output.shape, node.inputs[0].shape
    layout, whole = context.views.layout(node.inputs[0]), contiguous_strides(shape)
    box = _box(context, shape, src=(layout.offset, whole), dst=(0, whole))
    strides = context.printer.broadcast_strides(have, shape, strides=layout.strides)
    return _spec(group, context, [replace(box, src_strides=strides)])


def emit_slice(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, DynamicSlice)
    layout, shape = context.views.layout(node.inputs[0]), node.output.shape
    offset = sum((start * s for start, s in zip(op.starts, layout.strides, strict=True)), start=layout.offset)
    stepped = [product(pair) for pair in zip(op.steps, layout.strides, strict=True)]
    box = _box(context, shape, src=(settle(offset), stepped), dst=(0, contiguous_strides(shape)))
    return _spec(group, context, [box])


def _pieces(sizes: Sequence[Dim]) -> list[Dim]:
    """Where each piece begins."""
    starts: list[Dim] = [0]
    for size in sizes[:-1]:
        starts.append(settle(starts[-1] + size))
    return starts


def emit_split(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Split)
    layout = context.views.layout(node.inputs[0])
    boxes = []
    for index, (start, output) in enumerate(zip(_pieces(op.sizes), node.outputs, strict=True)):
        if output in group.outputs:
            src = (settle(layout.offset + start * layout.strides[op.axis]), layout.strides)
            dst = (0, contiguous_strides(output.shape))
            boxes.append(_box(context, output.shape, src=src, dst=dst, names=("in0", f"out{index}")))
    written = [index for index, output in enumerate(node.outputs) if output in group.outputs]
    type_ = bits(node.inputs[0].dtype)
    params = (Param("in0", type_), *(Param(f"out{index}", type_, written=True) for index in written))
    arguments = (context.read(node.inputs[0]), *(context.write(node.outputs[index]) for index in written))
    return KernelSpec("cpu/copy.cpp.j2", group.name, CopyContext(params, type_, tuple(boxes)), arguments)


def emit_concatenate(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Concatenate)
    axis = op.axis
    strides = contiguous_strides(node.output.shape)
    boxes = []
    for index, (start, value) in enumerate(
        zip(_pieces([value.shape[axis] for value in node.inputs]), node.inputs, strict=True)
    ):
        layout = context.views.layout(value)
        src, dst = (layout.offset, layout.strides), (settle(start * strides[axis]), strides)
        boxes.append(_box(context, value.shape, src=src, dst=dst, names=(f"in{index}", "out0")))
    spec = _spec(group, context, boxes, reads=len(node.inputs))
    return replace(spec, context=replace(spec.context, streamed=_streamed(node, context)))


def _streamed(node: Node, context: EmitContext) -> str:
    """When no attention reads the past from here, in C++."""
    cache = context.joined.get(node.output)
    if cache is None:
        return "false"
    return " && ".join(f"is_thin({', '.join(context.printer.all(sizes))})" for sizes in dict.fromkeys(cache.sizes))


@dataclass(frozen=True)
class PadContext:
    params: tuple[Param, ...]
    type: str
    mode: str
    src_extents: tuple[str, ...]
    before: tuple[str, ...]
    dst_extents: tuple[str, ...]


def emit_pad(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Pad)
    x = node.inputs[0]
    if op.mode != "constant":
        type_ = bits(x.dtype)
        params = (Param("in0", type_), Param("out0", type_, written=True))
        printer = context.printer
        body = PadContext(
            params, type_, op.mode, printer.all(x.shape), printer.all(op.before), printer.all(node.output.shape)
        )
        arguments = (context.read(x), context.write(node.output))
        return KernelSpec("cpu/pad.cpp.j2", group.name, body, arguments)
    return _constant_pad(group, context, op)


def _constant_pad(group: Group, context: EmitContext, op: Pad) -> KernelSpec:
    """A fill, then the part of the input that stays, copied to its place."""
    node = group.nodes[0]
    x, shape = node.inputs[0], node.output.shape
    src_strides, dst_strides = contiguous_strides(x.shape), contiguous_strides(shape)
    extents, src_offset, dst_offset = [], 0, 0
    for axis, before in enumerate(op.before):
        crop, shift = (
            (maximum(-before, 0), maximum(before, 0)) if not is_static(before) else (max(-before, 0), max(before, 0))
        )
        extents.append(maximum(minimum(x.shape[axis] - crop, shape[axis] - shift), 0))
        src_offset = settle(src_offset + crop * src_strides[axis])
        dst_offset = settle(dst_offset + shift * dst_strides[axis])
    box = _box(context, extents, src=(src_offset, src_strides), dst=(dst_offset, dst_strides))
    spec = _spec(group, context, [box])
    count = context.printer(product(shape))
    if len(node.inputs) == 1:
        return replace(spec, context=replace(spec.context, fill="zero", fill_count=count))
    params = (*spec.context.params, Param("value", spec.context.type))
    filled = replace(spec.context, params=params, fill="value", fill_count=count)
    arguments: tuple[Argument, ...] = (*spec.arguments, context.read(node.inputs[1]))
    return replace(spec, context=filled, arguments=arguments)
