"""Tensors made from dims and numbers: size, full, arange; and the triangle of trilu."""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.cpu.fuse import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, literal, only_node
from ortisan.codegen.cpu.kernels.move import bits
from ortisan.registry.dims import product
from ortisan.registry.ops import Arange, Full, Size, Trilu


@dataclass(frozen=True)
class SizeContext:
    params: tuple[Param, ...]
    dims: tuple[str, ...]


def emit_size(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Size)
    body = SizeContext((Param("out0", "int64_t", written=True),), context.printer.all(op.dims))
    return KernelSpec("cpu/size.cpp.j2", group.name, body, (context.write(node.output),))


@dataclass(frozen=True)
class FullContext:
    params: tuple[Param, ...]
    type: str
    count: str
    value: str


def emit_full(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Full)
    dtype = op.dtype
    count = context.printer(product(op.shape))
    params = (Param("out0", dtype.cpp, written=True),)
    body = FullContext(params, dtype.cpp, count, literal(op.value, dtype))
    return KernelSpec("cpu/full.cpp.j2", group.name, body, (context.write(node.output),))


@dataclass(frozen=True)
class ArangeContext:
    params: tuple[Param, ...]
    type: str
    start: str
    step: str
    count: str


def emit_arange(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Arange)
    printer = context.printer
    params = (Param("out0", op.dtype.cpp, written=True),)
    body = ArangeContext(params, op.dtype.cpp, printer(op.start), printer(op.step), printer(op.length))
    return KernelSpec("cpu/arange.cpp.j2", group.name, body, (context.write(node.output),))


@dataclass(frozen=True)
class TriluContext:
    params: tuple[Param, ...]
    type: str
    batch: str
    rows: str
    columns: str
    k: int
    upper: str


def emit_trilu(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Trilu)
    shape, printer, type_ = node.output.shape, context.printer, bits(node.output.dtype)
    params = (Param("in0", type_), Param("out0", type_, written=True))
    body = TriluContext(
        params,
        type_,
        printer(product(shape[:-2])),
        printer(shape[-2]),
        printer(shape[-1]),
        op.k,
        "true" if op.upper else "false",
    )
    return KernelSpec("cpu/trilu.cpp.j2", group.name, body, (context.read(node.inputs[0]), context.write(node.output)))
