"""Kernels that work along an axis, seen as [outer, n, inner]: softmax, reduce, argmax, cumsum, layernorm, rms_norm."""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.cpu.fuse import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, literal, only_node
from ortisan.registry.dims import Shape, product
from ortisan.registry.ops import ArgReduce, CumSum, LayerNorm, Reduce, RmsNorm, Softmax


@dataclass(frozen=True)
class AxisContext:
    """`function` is the C++ function or functor; `flags` are its boolean arguments, in order."""

    params: tuple[Param, ...]
    type: str
    function: str
    outer: str
    n: str
    inner: str
    flags: tuple[str, ...] = ()


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _emit(
    template: str, group: Group, context: EmitContext, axes: tuple[int, int], function: str, *flags: bool
) -> KernelSpec:
    node = group.nodes[0]
    x, y = node.inputs[0], node.output
    outer, n, inner = _geometry(x.shape, *axes, context)
    params = (Param("x", x.dtype.cpp), Param("y", y.dtype.cpp, written=True))
    body = AxisContext(params, x.dtype.cpp, function, outer, n, inner, tuple(map(_flag, flags)))
    return KernelSpec(template, group.name, body, (context.read(x), context.write(y)))


def _geometry(shape: Shape, first: int, last: int, context: EmitContext) -> tuple[str, str, str]:
    parts = shape[:first], shape[first : last + 1], shape[last + 1 :]
    outer, n, inner = (context.printer(product(part)) for part in parts)
    return outer, n, inner


def emit_softmax(group: Group, context: EmitContext) -> KernelSpec:
    _, op = only_node(group, Softmax)
    return _emit("cpu/softmax.cpp.j2", group, context, (op.axis, op.axis), op.name)


def emit_reduce(group: Group, context: EmitContext) -> KernelSpec:
    _, op = only_node(group, Reduce)
    boolean = {"max": "any", "min": "all"} if group.nodes[0].output.dtype.value == "bool" else {}
    return _emit("cpu/reduce.cpp.j2", group, context, (op.first, op.last), boolean.get(op.kind, op.kind))


def emit_arg_reduce(group: Group, context: EmitContext) -> KernelSpec:
    _, op = only_node(group, ArgReduce)
    return _emit("cpu/argmax.cpp.j2", group, context, (op.axis, op.axis), op.name, op.last)


def emit_cumsum(group: Group, context: EmitContext) -> KernelSpec:
    _, op = only_node(group, CumSum)
    return _emit("cpu/cumsum.cpp.j2", group, context, (op.axis, op.axis), "cumsum", op.exclusive, op.reverse)


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
    return KernelSpec("cpu/layernorm.cpp.j2", group.name, body, arguments)


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
    return KernelSpec("cpu/rms_norm.cpp.j2", group.name, body, arguments)
