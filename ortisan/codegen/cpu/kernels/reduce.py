"""Kernels that work along axes, seen as [outer, n, inner]: reduce, argmax, cumsum."""

from __future__ import annotations

from ortisan.codegen.cpu.call import CallContext, call_of
from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, Template, only_node
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.codegen.literals import flag
from ortisan.registry.dims import product
from ortisan.registry.ops import ArgReduce, CumSum, Reduce

_REDUCE = call_of("reduce.h")
_SCAN = call_of("scan.h")


def emit_along_axis(
    template: Template,
    group: Group,
    context: EmitContext,
    axes: tuple[int, int],
    function: str,
    *flags: bool,
    functor: tuple[str, ...] = (),
) -> KernelSpec:
    """`function<functor, T>(c, outer, n, inner, flags, x, y)`, with n the axes from the first to the last of `axes`."""
    node, (first, last) = group.nodes[0], axes
    x, y = node.inputs[0], node.output
    params = (Param("x", x.dtype.cpp), Param("y", y.dtype.cpp, written=True))
    parts = x.shape[:first], x.shape[first : last + 1], x.shape[last + 1 :]
    extents = (context.printer(product(part)) for part in parts)
    body = CallContext(params, function, (*functor, x.dtype.cpp), (*extents, *map(flag, flags), "x", "y"))
    return KernelSpec(template, group.name, body, (context.read(x), context.write(y)))


def emit_reduce(group: Group, context: EmitContext) -> KernelSpec:
    _, op = only_node(group, Reduce)
    boolean = {"max": "any", "min": "all"} if group.nodes[0].output.dtype.value == "bool" else {}
    functor = f"reduction::{boolean.get(op.kind, op.kind)}"
    return emit_along_axis(_REDUCE, group, context, (op.first, op.last), "reduce", functor=(functor,))


def emit_arg_reduce(group: Group, context: EmitContext) -> KernelSpec:
    _, op = only_node(group, ArgReduce)
    return emit_along_axis(_SCAN, group, context, (op.axis, op.axis), op.name, op.last)


def emit_cumsum(group: Group, context: EmitContext) -> KernelSpec:
    _, op = only_node(group, CumSum)
    return emit_along_axis(_SCAN, group, context, (op.axis, op.axis), "cumsum", op.exclusive, op.reverse)


KERNELS = (
    CpuKernel(ArgReduce, emit_arg_reduce, (_SCAN,)),
    CpuKernel(CumSum, emit_cumsum, (_SCAN,)),
    CpuKernel(Reduce, emit_reduce, (_REDUCE,)),
)
