"""Normalisations: softmax along an axis, layernorm and rms_norm over the trailing ones, group_norm of images."""

from __future__ import annotations

from ortisan.codegen.cpu.call import CallContext, call_of
from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import Argument, EmitContext, KernelSpec, Param, only_node
from ortisan.codegen.cpu.kernels.reduce import emit_along_axis
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.codegen.literals import literal
from ortisan.registry.dims import Shape, ceil_div, is_static, product
from ortisan.registry.ops import GroupNorm, LayerNorm, RmsNorm, Softmax

_CALL = call_of("rows.h")
_GROUP_NORM = call_of("group_norm.h")
_CHUNK_ELEMENTS, _CHUNK_PLACES = 16384, 64
"""Of what is read twice while it is in the nearest cache, and its places where the channels are not known."""


def emit_softmax(group: Group, context: EmitContext) -> KernelSpec:
    _, op = only_node(group, Softmax)
    return emit_along_axis(_CALL, group, context, (op.axis, op.axis), op.name)


def _rows(shape: Shape, axis: int, context: EmitContext) -> tuple[str, str]:
    """(outer, n), n being the dims from the axis on."""
    return context.printer(product(shape[:axis])), context.printer(product(shape[axis:]))


def emit_layernorm(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, LayerNorm)
    x = node.inputs[0]
    affine = {"gamma": op.gamma, "beta": op.beta}
    statistics = ("mean", "inv_std") if op.statistics else ()
    params = (
        Param("x", x.dtype.cpp),
        *(Param(name, x.dtype.cpp) for name, there in affine.items() if there),
        Param("y", x.dtype.cpp, written=True),
        *(Param(name, x.dtype.compute_cpp, written=True) for name in statistics),
    )
    given = (name if there else "nullptr" for name, there in affine.items())
    passed = (*_rows(x.shape, op.axis, context), "x", *given, literal(op.epsilon, x.dtype), "y", *statistics)
    body = CallContext(params, "layernorm", (x.dtype.cpp,), passed)
    arguments = (*map(context.read, node.inputs), *map(context.write, node.outputs))
    return KernelSpec(_CALL, group.name, body, arguments)


def emit_rms_norm(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, RmsNorm)
    x = node.inputs[0]
    gamma = (Param("gamma", x.dtype.cpp),) if op.gamma else ()
    params = (Param("x", x.dtype.cpp), *gamma, Param("y", x.dtype.cpp, written=True))
    given = "gamma" if op.gamma else "nullptr"
    passed = (*_rows(x.shape, op.axis, context), "x", given, literal(op.epsilon, x.dtype), "y")
    body = CallContext(params, "rms_norm", (x.dtype.cpp,), passed)
    arguments = (*map(context.read, node.inputs), context.write(node.output))
    return KernelSpec(_CALL, group.name, body, arguments)


def emit_group_norm(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, GroupNorm)
    x, y = node.inputs[0], node.output
    images, places, channels = x.shape[0], product(x.shape[1:-1]), x.shape[-1]
    chunk = max(16, _CHUNK_ELEMENTS // max(channels, 1)) if is_static(channels) else _CHUNK_PLACES
    chunks = ceil_div(places, chunk)
    affine = (Param("gamma", x.dtype.cpp), Param("beta", x.dtype.cpp))
    room = Param("moments", x.dtype.compute_cpp, written=True)
    params = (Param("x", x.dtype.cpp), *affine, Param("y", y.dtype.cpp, written=True), room)
    sizes = ", ".join(context.printer.all((images, places, channels, op.groups, chunk, chunks)))
    passed = (f"GroupNormShape{{{sizes}}}", "x", "gamma", "beta", literal(op.epsilon, x.dtype), "y", "moments")
    body = CallContext(params, "group_norm", (x.dtype.cpp,), passed)
    arguments = (*map(context.read, node.inputs), context.write(y), Argument("workspace"))
    workspace = product((max(4, x.dtype.size), images, chunks + 1, 2, channels))
    return KernelSpec(_GROUP_NORM, group.name, body, arguments, workspace)


KERNELS = (
    CpuKernel(GroupNorm, emit_group_norm, (_GROUP_NORM,)),
    CpuKernel(LayerNorm, emit_layernorm, (_CALL,)),
    CpuKernel(RmsNorm, emit_rms_norm, (_CALL,)),
    CpuKernel(Softmax, emit_softmax, (_CALL,)),
)
