"""Matrix products with their epilogue: `gemm_*` over packed weights, and `bmm_*` that packs its right side first."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ortisan.codegen.cpu.group import Group, rows_and_columns
from ortisan.codegen.cpu.kernel import Argument, EmitContext, KernelSpec, Param, Template, op_of
from ortisan.codegen.cpu.loops.chain import Chain
from ortisan.codegen.cpu.loops.epilogue import Clamp, build_epilogue, clamp_of
from ortisan.codegen.cpu.packing import packed_elements
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.codegen.cpu.tune.blocking import BlockingTable
from ortisan.registry.builder import is_constant
from ortisan.registry.dims import Dim, ceil_div, product
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Value
from ortisan.registry.ops import BlockGemm, Bmm, Conv2d, Elementwise, Gemm

_GEMM = Template("products/gemm", ("gemm.h", "loops.h", "scalar.h"))
_BLOCK_GEMM = Template("products/block_gemm", ("block_gemm.h", "scalar.h"))
_BMM = Template("products/bmm", ("gemm.h", "loops.h", "scalar.h"))


@dataclass(frozen=True)
class ProductContext:
    """One of the products of a kernel. Parameter p of the kernel that belongs to it is called p_INDEX."""

    params: tuple[Param, ...]
    columns: str
    epilogue: Chain
    clamp: Clamp | None
    """What the epilogue comes to, if tiles can do that by themselves."""


@dataclass(frozen=True)
class GemmContext:
    params: tuple[Param, ...]
    type: str
    weights: str
    rows: str
    depth: str
    blockings: BlockingTable
    products: tuple[ProductContext, ...]


@dataclass(frozen=True)
class BmmContext:
    """One product per batch index; strides of 0 repeat an operand. B, read with strides (k, n), is packed first."""

    params: tuple[Param, ...]
    type: str
    rows: str
    columns: str
    depth: str
    blockings: BlockingTable
    epilogue: Chain
    batch: tuple[str, ...]
    a_strides: tuple[str, ...]
    b_strides: tuple[str, ...]
    b_batches: str
    b_step: tuple[str, str]


def anchor_of(group: Group) -> Node:
    if group.anchor is None:
        raise TypeError(f"{group.name} has no anchor")
    return group.anchor


def emit_gemm(group: Group, context: EmitContext) -> KernelSpec:
    anchor = anchor_of(group)
    x, w = anchor.inputs[:2]
    if not is_constant(w):
        return emit_bmm(group, context)
    printer, cpp = context.printer, x.dtype.cpp
    params, arguments, products = [Param("a", cpp)], [context.read(x)], []
    members = group.members or (group,)
    for index, member in enumerate(members):
        product, given = _product(member, context)
        products.append(product)
        arguments += given
        params += [replace(param, name=f"{param.name}_{index}") for param in product.params]
    rows, depth = rows_and_columns(x.shape)
    columns = [anchor_of(member).output.shape[-1] for member in members]
    blockings = context.blockings(x.dtype, depth, columns, rows, packed=x.dtype is w.dtype)
    body = GemmContext(tuple(params), cpp, w.dtype.cpp, printer(rows), printer(depth), blockings, tuple(products))
    return KernelSpec(_GEMM, group.name, body, tuple(arguments))


def _product(group: Group, context: EmitContext) -> tuple[ProductContext, list[Argument]]:
    anchor = anchor_of(group)
    layout = anchor.op.layout if isinstance(anchor.op, Gemm) else "rrr"
    w = anchor.inputs[1]
    packed = context.weight(w, "panels_rcr" if layout == "rcr" else "panels_rrr")
    epilogue, params, arguments = epilogue_of(group, anchor, context)
    columns = context.printer(anchor.output.shape[-1])
    clamp = clamp_of(epilogue) if w.dtype in (DType.FLOAT32, DType.FLOAT64) else None
    return ProductContext((Param("b", w.dtype.cpp), *params), columns, epilogue, clamp), [packed, *arguments]


def epilogue_of(group: Group, anchor: Node, context: EmitContext) -> tuple[Chain, list[Param], list[Argument]]:
    """The bias, then what is fused to the product."""
    nodes, total = list(group.chain), anchor.output
    if isinstance(anchor.op, (BlockGemm, Conv2d, Gemm)) and anchor.op.bias:
        total = Value("sum", anchor.output.type)
        nodes.insert(0, Node(Elementwise("ADD"), (total, anchor.inputs[-1]), anchor.outputs, anchor.origin))
    return build_epilogue(total, nodes, group.outputs, context)


def emit_bmm(group: Group, context: EmitContext) -> KernelSpec:
    anchor = anchor_of(group)
    a, b = anchor.inputs[:2]
    op = anchor.op
    layout = op.layout if isinstance(op, (Gemm, Bmm)) else "rrr"
    epilogue, params, arguments = epilogue_of(group, anchor, context)
    printer, dtype = context.printer, a.dtype
    columns, depth = anchor.output.shape[-1], a.shape[-1]
    batch, rows = _batch_and_rows(anchor)
    b_batch = b.shape[:-2]
    packed = packed_elements(depth, columns, dtype)
    body = BmmContext(
        (Param("a", dtype.cpp), Param("b", dtype.cpp), Param("packed", dtype.cpp, written=True), *params),
        dtype.cpp,
        printer(rows),
        printer(columns),
        printer(depth),
        context.blockings(dtype, depth, (columns,), rows, packed=False),
        epilogue,
        printer.all(batch),
        printer.broadcast_strides(a.shape[:-2] if batch else (), batch, product((rows, depth))),
        printer.broadcast_strides(b_batch, batch, packed),
        printer(product(b_batch)),
        (printer(columns), "1") if layout == "rrr" else ("1", printer(depth)),
    )
    workspace = product((dtype.size, packed, *b_batch))
    given = (context.read(a), context.read(b), Argument("workspace"), *arguments)
    return KernelSpec(_BMM, group.name, body, given, workspace)


@dataclass(frozen=True)
class BlockGemmContext:
    params: tuple[Param, ...]
    rows: str
    columns: str
    depth: str
    bits: int
    block: int
    rounded: bool
    epilogue: Chain


def emit_block_gemm(group: Group, context: EmitContext) -> KernelSpec:
    anchor = anchor_of(group)
    op = op_of(anchor, BlockGemm)
    x, q, scale, zero = anchor.inputs[:4]
    epilogue, params, arguments = epilogue_of(group, anchor, context)
    rows, depth = rows_and_columns(x.shape)[0], op.depth
    own = [Param("a", "float"), Param("q", "uint8_t"), Param("scale", "float"), Param("zero", "float")]
    given = [context.read(x), context.weight(q, "fours_8" if op.bits == 8 else "fours_4")]
    given += [context.weight(each, "panels_rcr") for each in (scale, zero)]
    workspace = product((rows, ceil_div(depth, op.block), op.block + 8)) if op.rounded else None
    if workspace is not None:
        own.append(Param("workspace", "void", written=True))
        given.append(Argument("workspace"))
    printer = context.printer
    sizes = printer(rows), printer(anchor.output.shape[-1]), printer(depth)
    body = BlockGemmContext((*own, *params), *sizes, op.bits, op.block, op.rounded, epilogue)
    return KernelSpec(_BLOCK_GEMM, group.name, body, (*given, *arguments), workspace)


def _needs_constants(node: Node) -> str | None:
    return None if all(map(is_constant, node.inputs[1:4])) else "the quantized weight is computed"


def _batch_and_rows(anchor: Node) -> tuple[tuple[Dim, ...], Dim]:
    """A two-dimensional right side needs no batch: all leading dims are rows."""
    shape = anchor.output.shape
    if len(anchor.inputs[1].shape) == 2:
        return (), product(shape[:-1])
    return shape[:-2], shape[-2]


def _has_packed_weights(node: Node) -> bool:
    return is_constant(node.inputs[1])


KERNELS = (
    CpuKernel(BlockGemm, emit_block_gemm, (_BLOCK_GEMM,), objection=_needs_constants, epilogue=True, in_place=4),
    CpuKernel(Bmm, emit_bmm, (_BMM,), epilogue=True, in_place=2),
    CpuKernel(Gemm, emit_gemm, (_GEMM, _BMM), epilogue=True, joins=_has_packed_weights, in_place=2),
)
