"""A depthwise convolution with the product before it, the one behind it, or both, as one kernel.

A 1 x 1 convolution is a product. What is between them is as large as the image is wide: it would go through memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ortisan.codegen.cpu.group import Group, operand_kind, rows_and_columns
from ortisan.codegen.cpu.kernel import Argument, EmitContext, KernelSpec, Param, Template
from ortisan.codegen.cpu.kernels.images.windows import window_sizes
from ortisan.codegen.cpu.kernels.products import anchor_of, epilogue_of
from ortisan.codegen.cpu.loops.chain import Chain
from ortisan.codegen.cpu.loops.epilogue import Clamp, clamp_of
from ortisan.codegen.cpu.packing import panel_width
from ortisan.registry.builder import is_constant
from ortisan.registry.dims import ceil_div, is_static, product, typical
from ortisan.registry.graph import Node, Value
from ortisan.registry.ops import Conv2d, Gemm

BLOCK = Template("images/block", ("block.h", "scalar.h"), instance="images/block")
_ROOM = 192 << 10
"""Bytes of rows that a task keeps: `block_elements` of templates/cpu/images/block.h."""
_LARGE = 1 << 20
"""Bytes of an image that leave the nearer caches before they are read again."""
_AGAIN = 2
"""Rows that two strips multiply: where there are more, that takes what is won."""
_BLOCK_CHANNELS = 128


@dataclass(frozen=True)
class StageContext:
    """What becomes of the sums of a product or convolution whose results stay in the cache; they are its `out0`.

    Parameter p of the kernel that belongs to it is called p_NAME.
    """

    name: str
    params: tuple[Param, ...]
    epilogue: Chain
    clamp: Clamp | None


@dataclass(frozen=True)
class BlockContext:
    """`depth` of the expansion and `filters` of the projection are empty where there is none."""

    params: tuple[Param, ...]
    type: str
    sizes: tuple[str, ...]
    """the fields of ConvShape"""
    usual: int
    """columns of most tiles of products, and of the convolution"""
    widest: int
    depth: str
    filters: str
    stages: tuple[StageContext, ...]
    epilogue: Chain
    clamp: Clamp | None


def expands(node: Node, before: Group) -> bool:
    """Whether a convolution is a depthwise one of large images that has tiles, behind a product."""
    op, wide = node.op, before.anchor
    if not isinstance(op, Conv2d) or wide is None or not _is_product(wide) or before.before or before.members:
        return False
    again = node.inputs[1].shape[1] - op.strides[0]
    return _has_tiles(node) and again <= _AGAIN and _is_large(node.inputs[0]) and _stays(before)


def projects(node: Node, before: Group) -> bool:
    """Whether a node is a product behind a depthwise convolution of large images."""
    depthwise = before.anchor
    if depthwise is None or not _is_product(node) or not _has_tiles(depthwise):
        return False
    return _is_large(depthwise.inputs[0]) and _stays(before)


def _is_product(node: Node) -> bool:
    return isinstance(node.op, Gemm) and is_constant(node.inputs[1])


def _has_tiles(node: Node) -> bool:
    """As `depthwise_tiles` of templates/cpu/images/depthwise_tile.h has them, within the room of a block."""
    op = node.op
    if not isinstance(op, Conv2d) or not is_constant(node.inputs[1]):
        return False
    dtype, channels, (filters, height, width) = node.output.dtype, node.inputs[0].shape[3], node.inputs[1].shape[:3]
    usual = width in (3, 5) and op.strides[1] <= 2 and op.dilations == (1, 1) and max(op.pads) <= width
    if not usual or not is_static(channels) or not op.group == channels == filters:
        return False
    panel = panel_width(dtype)
    least = (height * width + 1) * ceil_div(filters, panel) * panel * dtype.size
    return bool(panel <= filters and least <= _ROOM)


def _is_large(image: Value) -> bool:
    return bool(image.dtype.size * product(map(typical, image.shape[1:])) >= _LARGE)


def _stays(group: Group) -> bool:
    """Whether the results of a group need not be stored, and its epilogue reads nothing but rows."""
    anchor = anchor_of(group)
    rows, columns = rows_and_columns(anchor.output.shape)
    own = (anchor, *group.chain)
    made = {value for node in own for value in node.outputs}
    operands = [value for node in group.chain for value in node.inputs if value not in made]
    kinds = {operand_kind(value.shape, rows, columns) for value in operands}
    return kinds <= {"row", "scalar"} and group.outputs == (own[-1].output,)


def emit_block(group: Group, context: EmitContext) -> KernelSpec:
    """Of a convolution behind a product, or of a product behind a convolution that may be behind another."""
    last, before = anchor_of(group), group.before
    if before is None:
        raise TypeError(f"{group.name} has nothing before it")
    projection = before if isinstance(last.op, Gemm) else None
    expansion = projection.before if projection else before
    convolution = anchor_of(projection) if projection else last
    image, taps = convolution.inputs[:2]
    first = anchor_of(expansion).inputs[0] if expansion else image
    cpp, printer = image.dtype.cpp, context.printer
    factors, given = [Param("x", cpp), Param("taps", cpp)], [context.read(first), context.weight(taps, "taps")]
    stages: list[StageContext] = []
    for name, stage, wide in (("expanded", expansion, expansion), ("projected", projection, group)):
        if stage is None:
            continue
        factors.append(Param(name, cpp))
        given.append(_packed(anchor_of(wide) if wide else last, context))
        made, arguments = _stage(name, stage, context)
        stages.append(made)
        factors += [replace(param, name=f"{param.name}_{name}") for param in made.params]
        given += arguments
    epilogue, params, arguments = epilogue_of(group, last, context)
    body = BlockContext(
        (*factors, *params),
        cpp,
        printer.all(window_sizes(convolution, taps.shape[1:3], taps.shape[0])),
        2 * panel_width(image.dtype),
        min(int(taps.shape[0]), _BLOCK_CHANNELS),
        printer(first.shape[-1]) if expansion else "",
        printer(last.output.shape[-1]) if projection else "",
        tuple(stages),
        epilogue,
        clamp_of(epilogue),
    )
    return KernelSpec(BLOCK, group.name, body, (*given, *arguments))


def _packed(node: Node, context: EmitContext) -> Argument:
    layout = node.op.layout if isinstance(node.op, Gemm) else ""
    return context.weight(node.inputs[1], "panels_rcr" if layout == "rcr" else "panels_rrr")


def _stage(name: str, group: Group, context: EmitContext) -> tuple[StageContext, list[Argument]]:
    """The last parameter of its epilogue is its output, which is not stored."""
    epilogue, params, arguments = epilogue_of(group, anchor_of(group), context)
    return StageContext(name, tuple(params[:-1]), epilogue, clamp_of(epilogue)), arguments[:-1]
