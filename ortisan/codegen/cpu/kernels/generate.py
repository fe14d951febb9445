"""Tensors made from dims and numbers: size, full, arange."""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, Template, literal, only_node
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.registry.dims import product
from ortisan.registry.ops import Arange, Full, Size

_SIZE = Template("generate/size")
_FULL = Template("generate/full", ("move.h",))
_ARANGE = Template("generate/arange", ("move.h",))


@dataclass(frozen=True)
class SizeContext:
    params: tuple[Param, ...]
    dims: tuple[str, ...]


def emit_size(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Size)
    body = SizeContext((Param("out0", "int64_t", written=True),), context.printer.all(op.dims))
    return KernelSpec(_SIZE, group.name, body, (context.write(node.output),))


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
    return KernelSpec(_FULL, group.name, body, (context.write(node.output),))


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
    return KernelSpec(_ARANGE, group.name, body, (context.write(node.output),))


KERNELS = (
    CpuKernel(Arange, emit_arange, (_ARANGE,)),
    CpuKernel(Full, emit_full, (_FULL,)),
    CpuKernel(Size, emit_size, (_SIZE,)),
)
