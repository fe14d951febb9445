"""Kernels that work along axes, seen as [outer, n, inner]: reduce, argmax, cumsum."""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, Template, only_node
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.registry.dims import Shape, product
from ortisan.registry.ops import ArgReduce, CumSum, Reduce

_REDUCE = Template("reduce/reduce", ("reduce.h",))
_ARGMAX = Template("reduce/argmax", ("scan.h",))
_CUMSUM = Template("reduce/cumsum", ("scan.h",))


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


def emit_along_axis(
    template: Template, group: Group, context: EmitContext, axes: tuple[int, int], function: str, *flags: bool
) -> KernelSpec:
    """A kernel over the axes from the first to the last of `axes`."""
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


def emit_reduce(group: Group, context: EmitContext) -> KernelSpec:
    _, op = only_node(group, Reduce)
    boolean = {"max": "any", "min": "all"} if group.nodes[0].output.dtype.value == "bool" else {}
    return emit_along_axis(_REDUCE, group, context, (op.first, op.last), boolean.get(op.kind, op.kind))


def emit_arg_reduce(group: Group, context: EmitContext) -> KernelSpec:
    _, op = only_node(group, ArgReduce)
    return emit_along_axis(_ARGMAX, group, context, (op.axis, op.axis), op.name, op.last)


def emit_cumsum(group: Group, context: EmitContext) -> KernelSpec:
    _, op = only_node(group, CumSum)
    return emit_along_axis(_CUMSUM, group, context, (op.axis, op.axis), "cumsum", op.exclusive, op.reverse)


KERNELS = (
    CpuKernel(ArgReduce, emit_arg_reduce, (_ARGMAX,)),
    CpuKernel(CumSum, emit_cumsum, (_CUMSUM,)),
    CpuKernel(Reduce, emit_reduce, (_REDUCE,)),
)
