"""Rotary position embedding. x and the tables are read through strides; the output is contiguous."""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, Template, only_node
from ortisan.codegen.cpu.row import CpuKernel, rows_of
from ortisan.codegen.literals import flag
from ortisan.registry.graph import Value
from ortisan.registry.ops import Rotary

_ROTARY = Template("rotary/rotary", ("rotary.h",))


@dataclass(frozen=True)
class Operand:
    name: str
    offset: str
    strides: tuple[str, ...]
    """(batch, head, row)"""


@dataclass(frozen=True)
class RotaryContext:
    params: tuple[Param, ...]
    type: str
    shape: tuple[str, ...]
    """B, H, S, D, size, wide"""
    operands: tuple[Operand, ...]
    interleaved: str


def emit_rotary(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, Rotary)
    x, cos, _ = node.inputs
    cpp, printer, names = x.dtype.cpp, context.printer, ("x", "cos", "sin")

    def operand(name: str, value: Value) -> Operand:
        layout = context.views.layout(value)
        extents = (*x.shape[:3], value.shape[-1])
        strides = printer.broadcast_strides(value.shape, extents, strides=layout.strides)
        return Operand(name, printer(layout.offset), strides[:3])

    body = RotaryContext(
        (*(Param(name, cpp) for name in names), Param("out", cpp, written=True)),
        cpp,
        (*printer.all((*x.shape, op.size)), flag(cos.shape[-1] == op.size)),
        tuple(map(operand, names, node.inputs)),
        flag(op.interleaved),
    )
    arguments = (*map(context.read, node.inputs), context.write(node.output))
    return KernelSpec(_ROTARY, group.name, body, arguments)


KERNELS = (CpuKernel(Rotary, emit_rotary, (_ROTARY,), reads=rows_of),)
