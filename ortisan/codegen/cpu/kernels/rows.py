"""Normalisations of rows: softmax along an axis, layernorm and rms_norm over the trailing ones."""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, Template, literal, only_node
from ortisan.codegen.cpu.kernels.reduce import emit_along_axis
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.registry.dims import product
from ortisan.registry.ops import LayerNorm, RmsNorm, Softmax

_SOFTMAX = Template("rows/softmax", ("rows.h",))
_LAYERNORM = Template("rows/layernorm", ("rows.h",))
_RMS_NORM = Template("rows/rms_norm", ("rows.h",))


def emit_softmax(group: Group, context: EmitContext) -> KernelSpec:
    _, op = only_node(group, Softmax)
    return emit_along_axis(_SOFTMAX, group, context, (op.axis, op.axis), op.name)


@dataclass(frozen=True)
class LayerNormContext:
    params: tuple[Param, ...]
    type: str
    outer: str
    n: str
    gamma: str
    beta: str
    epsilon: str
    statistics: tuple[str, ...]


def emit_layernorm(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, LayerNorm)
    x = node.inputs[0]
    affine = [name for name, there in (("gamma", op.gamma), ("beta", op.beta)) if there]
    statistics = ("mean", "inv_std") if op.statistics else ()
    params = (
        Param("x", x.dtype.cpp),
        *(Param(name, x.dtype.cpp) for name in affine),
        Param("y", x.dtype.cpp, written=True),
        *(Param(name, x.dtype.compute_cpp, written=True) for name in statistics),
    )
    body = LayerNormContext(
        params,
        x.dtype.cpp,
        context.printer(product(x.shape[: op.axis])),
        context.printer(product(x.shape[op.axis :])),
        "gamma" if op.gamma else "nullptr",
        "beta" if op.beta else "nullptr",
        literal(op.epsilon, x.dtype),
        statistics,
    )
    arguments = (*map(context.read, node.inputs), *map(context.write, node.outputs))
    return KernelSpec(_LAYERNORM, group.name, body, arguments)


@dataclass(frozen=True)
class RmsNormContext:
    params: tuple[Param, ...]
    type: str
    outer: str
    n: str
    gamma: str
    epsilon: str


def emit_rms_norm(group: Group, context: EmitContext) -> KernelSpec:
    node, op = only_node(group, RmsNorm)
    x = node.inputs[0]
    gamma = (Param("gamma", x.dtype.cpp),) if op.gamma else ()
    body = RmsNormContext(
        (Param("x", x.dtype.cpp), *gamma, Param("y", x.dtype.cpp, written=True)),
        x.dtype.cpp,
        context.printer(product(x.shape[: op.axis])),
        context.printer(product(x.shape[op.axis :])),
        "gamma" if op.gamma else "nullptr",
        literal(op.epsilon, x.dtype),
    )
    arguments = (*map(context.read, node.inputs), context.write(node.output))
    return KernelSpec(_RMS_NORM, group.name, body, arguments)


KERNELS = (
    CpuKernel(LayerNorm, emit_layernorm, (_LAYERNORM,)),
    CpuKernel(RmsNorm, emit_rms_norm, (_RMS_NORM,)),
    CpuKernel(Softmax, emit_softmax, (_SOFTMAX,)),
)
