"""Normalisations of rows: softmax along an axis, layernorm and rms_norm over the trailing ones."""

from __future__ import annotations

from ortisan.codegen.cpu.call import CallContext, call_of
from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, only_node
from ortisan.codegen.cpu.kernels.reduce import emit_along_axis
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.codegen.literals import literal
from ortisan.registry.dims import Shape, product
from ortisan.registry.ops import LayerNorm, RmsNorm, Softmax

_CALL = call_of("rows.h")


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


KERNELS = (
    CpuKernel(LayerNorm, emit_layernorm, (_CALL,)),
    CpuKernel(RmsNorm, emit_rms_norm, (_CALL,)),
    CpuKernel(Softmax, emit_softmax, (_CALL,)),
)
