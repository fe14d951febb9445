"""Convolutions and pools over images with the channels last."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ortisan.codegen.cpu.call import CallContext, call_of
from ortisan.codegen.cpu.group import Group, rows_and_columns
from ortisan.codegen.cpu.kernel import Argument, EmitContext, KernelSpec, Param, Template, only_node, op_of
from ortisan.codegen.cpu.kernels.images.blocks import BLOCK
from ortisan.codegen.cpu.kernels.images.windows import window_sizes
from ortisan.codegen.cpu.kernels.products import anchor_of, epilogue_of
from ortisan.codegen.cpu.loops.chain import Chain
from ortisan.codegen.cpu.loops.epilogue import Clamp, clamp_of
from ortisan.codegen.cpu.packing import packed_elements, panel_width
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.codegen.cpu.tune.blocking import DEFAULT, BlockingTable, BlockingUpTo
from ortisan.codegen.literals import flag
from ortisan.registry.builder import is_constant
from ortisan.registry.dims import ceil_div, is_static, minimum, product, typical
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node
from ortisan.registry.ops import Conv2d, Pool2d

_CONV = Template("images/conv", ("computed_filters.h", "conv.h", "scalar.h"), instance="images/conv")
_DOT = Template("images/conv", ("dot.h", "scalar.h"), instance="images/dot")
_MOST_DOTS, _LONG_RUN = 4, 16
"""Filters, and elements of one of their rows, for which dot products are faster than panels that are nearly empty."""
_DEPTHWISE = Template("images/conv", ("computed_filters.h", "depthwise.h", "scalar.h"), instance="images/depthwise")
_POOL = replace(call_of("pool.h"), instance="images/pool")
_WINOGRAD = Template("images/conv", ("scalar.h", "winograd.h"), instance="images/winograd")
NO_BLOCKING = (BlockingUpTo(None, DEFAULT),)
_WAVE_ELEMENTS = 1 << 20
"""What is transformed at a time stays in a shared cache."""
_BYTES_PER_CYCLE = 8


@dataclass(frozen=True)
class ConvContext:
    params: tuple[Param, ...]
    type: str
    function: str
    sizes: tuple[str, ...]
    """the fields of ConvShape"""
    usual: int
    """columns of most tiles"""
    blockings: BlockingTable
    epilogue: Chain
    more: tuple[str, ...] = ()
    """further arguments of the function"""
    clamp: Clamp | None = None
    """What the epilogue comes to, where the kernel does that by itself."""
    packing: tuple[str, ...] = ()
    """the function that packs filters which are known at run time only, and its sizes"""


def emit_conv(group: Group, context: EmitContext) -> KernelSpec:
    anchor = anchor_of(group)
    op, (x, w), y = op_of(anchor, Conv2d), anchor.inputs[:2], anchor.output
    printer, cpp = context.printer, x.dtype.cpp
    epilogue, params, arguments = epilogue_of(group, anchor, context)
    filters, depth = w.shape[0] // op.group, product(w.shape[1:])
    sizes = printer.all(window_sizes(anchor, w.shape[1:3], op.group))
    blockings = context.blockings(x.dtype, depth, (filters,), rows_and_columns(y.shape)[0], packed=False)
    usual = 2 * panel_width(x.dtype)
    factors = (Param("x", cpp), Param("w", cpp))
    if not is_constant(w):
        return _emit_computed(group, context)
    if op.group == 1 and filters <= _MOST_DOTS and product(w.shape[2:]) >= _LONG_RUN:
        body = ConvContext((*factors, *params), cpp, "dot2d", sizes, filters, NO_BLOCKING, epilogue)
        return KernelSpec(_DOT, group.name, body, (context.read(x), context.weight(w, "plain"), *arguments))
    if op.group == x.shape[3] == w.shape[0]:
        body = ConvContext(
            (*factors, *params), cpp, "depthwise2d", sizes, 0, NO_BLOCKING, epilogue, clamp=clamp_of(epilogue)
        )
        return KernelSpec(_DEPTHWISE, group.name, body, (context.read(x), context.weight(w, "taps"), *arguments))
    if context.winograd and winograd_pays(anchor):
        wave = max(1, _WAVE_ELEMENTS // winograd_band(x.shape[3]))
        tiles = product((y.shape[0], ceil_div(y.shape[1], 4), ceil_div(y.shape[2], 4)))
        workspace = product((x.dtype.size, winograd_band(x.shape[3]), minimum(wave, ceil_div(tiles, 16))))
        own = (*factors, Param("workspace", cpp, written=True), *params)
        body = ConvContext(own, cpp, "winograd2d", sizes, usual, NO_BLOCKING, epilogue, (str(wave), "workspace"))
        given = (context.read(x), context.weight(w, "winograd"), Argument("workspace"), *arguments)
        return KernelSpec(_WINOGRAD, group.name, body, given, workspace)
    stored = context.weight(context.reshaped(w, (op.group, filters, depth)), "panels_rcr")
    clamp = clamp_of(epilogue)
    body = ConvContext((*factors, *params), cpp, "conv2d", sizes, usual, blockings, epilogue, clamp=clamp)
    return KernelSpec(_CONV, group.name, body, (context.read(x), stored, *arguments))


def _emit_computed(group: Group, context: EmitContext) -> KernelSpec:
    """Filters that are packed before each run."""
    anchor = anchor_of(group)
    op, (x, w), printer, cpp = op_of(anchor, Conv2d), anchor.inputs[:2], context.printer, anchor.output.dtype.cpp
    epilogue, params, arguments = epilogue_of(group, anchor, context)
    filters, depth, pixels = w.shape[0] // op.group, product(w.shape[1:]), rows_and_columns(anchor.output.shape)[0]
    sizes = printer.all(window_sizes(anchor, w.shape[1:3], op.group))
    blockings: BlockingTable = NO_BLOCKING
    if op.group == x.shape[3] == w.shape[0]:
        template, function, elements = _DEPTHWISE, "depthwise2d", w.type.elements
        packing = ("pack_taps", *printer.all((w.shape[0], depth)))
    else:
        template, function, elements = _CONV, "conv2d", product((op.group, packed_elements(depth, filters, x.dtype)))
        packing = ("pack_filters", *printer.all((op.group, filters, depth)))
        blockings = context.blockings(x.dtype, depth, (filters,), pixels, packed=False)
    factors = (Param("x", cpp), Param("w", cpp), Param("packed", cpp, written=True))
    usual = 0 if function == "depthwise2d" else 2 * panel_width(x.dtype)
    body = ConvContext((*factors, *params), cpp, function, sizes, usual, blockings, epilogue, packing=packing)
    given = (context.read(x), context.read(w), Argument("workspace"), *arguments)
    return KernelSpec(template, group.name, body, given, product((x.dtype.size, elements)))


def winograd_band(channels: int) -> int:
    """Elements of the terms of 16 tiles: 36 times `winograd_term` of templates/cpu/images/winograd.h."""
    return 36 * (16 * channels + 16)


def winograd_pays(node: Node) -> bool:
    """Whether Winograd's algorithm is the faster one, by a cost model in cycles of a core with two FMAs of 16 floats.

    It multiplies less, but its filters are four times as large, and have to be read.
    """
    op, (x, w), y = op_of(node, Conv2d), node.inputs[:2], node.output
    channels, filters = x.shape[3], w.shape[0]
    if w.shape[1:3] != (3, 3) or op.strides != (1, 1) or op.dilations != (1, 1) or op.group != 1:
        return False
    if x.dtype is not DType.FLOAT32 or not is_static(channels) or channels % 16 or filters < 16:
        return False
    images, rows, columns = map(typical, y.shape[:3])
    tiles = images * -(-rows // 4) * -(-columns // 4)
    multiplied = 1.15 * 36 * max(tiles, 8) * channels * filters / 32
    read = 36 * 4 * channels * filters / _BYTES_PER_CYCLE
    transformed = 8 * tiles * (channels + filters)
    direct = 9 * images * rows * columns * channels * filters / 32
    return bool(max(multiplied, read) + transformed < 0.9 * direct)


def emit_pool(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Pool2d)
    x, places = node.inputs[0], ("places",) if op.indices else ()
    outputs = zip(("y", *places), node.outputs, strict=True)
    params = (Param("x", x.dtype.cpp), *(Param(name, value.dtype.cpp, written=True) for name, value in outputs))
    shape = f"ConvShape{{{', '.join(context.printer.all(window_sizes(node, op.kernel, 1)))}}}"
    padding = (*map(str, op.pads[2:]), flag(op.counts_padding)) if op.kind == "mean" else ()
    body = CallContext(params, op.name, (x.dtype.cpp,), (shape, *padding, "x", "y", *places))
    # The kernel writes both of its results, also one that nobody reads.
    unread = [value for value in node.outputs if value not in group.outputs]
    workspace = product((unread[0].dtype.size, *unread[0].shape)) if unread else None
    written = [Argument("workspace") if value in unread else context.write(value) for value in node.outputs]
    return KernelSpec(_POOL, group.name, body, (context.read(x), *written), workspace)


KERNELS = (
    CpuKernel(Conv2d, emit_conv, (BLOCK, _CONV, _DEPTHWISE, _DOT, _WINOGRAD), epilogue=True, in_place=2),
    CpuKernel(Pool2d, emit_pool, (_POOL,)),
)
