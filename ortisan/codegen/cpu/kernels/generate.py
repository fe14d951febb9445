"""Tensors made from dims and numbers: size, full, arange."""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.cpu.call import CallContext, call_of
from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, Template, only_node
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.codegen.literals import literal
from ortisan.registry.dims import product
from ortisan.registry.ops import Arange, Full, Size

_SIZE = Template("generate/size")
_CALL = call_of("generate.h")


@dataclass(frozen=True)
class SizeContext:
    params: tuple[Param, ...]
    dims: tuple[str, ...]


def emit_size(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Size)
    body = SizeContext((Param("out0", "int64_t", written=True),), context.printer.all(op.dims))
    return KernelSpec(_SIZE, group.name, body, (context.write(node.output),))


def emit_full(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Full)
    cpp, count = op.dtype.cpp, context.printer(product(op.shape))
    params = (Param("out0", cpp, written=True),)
    body = CallContext(params, "fill", (cpp,), (count, f"store<{cpp}>({literal(op.value, op.dtype)})", "out0"))
    return KernelSpec(_CALL, group.name, body, (context.write(node.output),))


def emit_arange(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Arange)
    cpp, printer = op.dtype.cpp, context.printer
    numbers = (f"static_cast<{cpp}>({printer(number)})" for number in (op.start, op.step))
    params = (Param("out0", cpp, written=True),)
    body = CallContext(params, "arange", (cpp,), (printer(op.length), *numbers, "out0"))
    return KernelSpec(_CALL, group.name, body, (context.write(node.output),))


KERNELS = (
    CpuKernel(Arange, emit_arange, (_CALL,)),
    CpuKernel(Full, emit_full, (_CALL,)),
    CpuKernel(Size, emit_size, (_SIZE,)),
)
