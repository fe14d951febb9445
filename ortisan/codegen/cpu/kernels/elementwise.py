"""Pure elementwise groups: one loop over memory for the whole chain, with broadcasting and several outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ortisan.codegen.cpu.group import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param, ScalarCall, Template, op_of
from ortisan.codegen.cpu.loops.chain import Load, Store, build_chain
from ortisan.codegen.cpu.loops.strips import Segment, Strip, cut
from ortisan.codegen.cpu.row import CpuKernel
from ortisan.codegen.literals import literal
from ortisan.codegen.strides import Layout, continues, line_length, walk
from ortisan.registry.builder import is_constant
from ortisan.registry.dims import Dim, product
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Value
from ortisan.registry.ops import Cast, Elementwise

_ELEMENTWISE = Template("elementwise/elementwise", ("loops.h", "scalar.h"))
_FAST_CASTS = frozenset({(DType.INT64, DType.FLOAT32), (DType.FLOAT32, DType.INT64)})


@dataclass(frozen=True)
class ElementwiseContext:
    params: tuple[Param, ...]
    extents: tuple[str, ...]
    loads: tuple[Load, ...]
    stores: tuple[Store, ...]
    segments: tuple[Segment, ...]
    strips: tuple[Strip, ...]
    in_strips: bool


def emit_elementwise(group: Group, context: EmitContext) -> KernelSpec:
    shape = group.chain[0].output.shape
    operands = [v for v in group.inputs if not (is_constant(v) and v.data is not None and v.data.size == 1)]
    walks = [walk(v.shape, shape, context.views.layout(v).strides) for v in operands]
    axes = merged_axes(shape, walks)
    extents = [product(shape[axis] for axis in block) for block in axes]

    def access(value: Value) -> Load:
        layout = context.views.layout(value)
        strides = context.printer.broadcast_strides(value.shape, shape, strides=layout.strides)
        steps = tuple(strides[block[-1]] if block else "0" for block in axes)
        return Load("", "", "strided", steps, context.printer(layout.offset))

    chain, params, arguments = build_chain(group.chain, group.outputs, {}, context, access)
    printed = context.printer.all(extents)
    segments, strips = cut(chain)
    in_strips = any(segment.interleaved for segment in segments) or bool(strips)
    body = ElementwiseContext(tuple(params), printed, chain.loads, chain.stores, segments, strips, in_strips)
    return KernelSpec(_ELEMENTWISE, group.name, body, tuple(arguments))


def merged_axes(shape: Sequence[Dim], walks: Sequence[Sequence[Dim | None]]) -> list[list[int]]:
    """Neighbouring axes that every operand walks through in one stride are one loop."""
    axes: list[list[int]] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        if axes and all(continues(steps[axes[-1][-1]], steps[axis], extent) for steps in walks):
            axes[-1].append(axis)
        else:
            axes.append([axis])
    return axes or [[]]


def _reads(node: Node, value: Value, layout: Layout) -> bool:
    """Lines: elements along the last axis that are neighbours, or one repeated."""
    shape = node.output.shape
    return line_length(walk(value.shape, shape, layout.strides), shape) is not None


def _function(node: Node) -> ScalarCall:
    op, dtype = op_of(node, Elementwise), node.output.dtype
    row = op.row
    return ScalarCall(
        row.cpp,
        tuple(literal(number, node.inputs[0].dtype) for number in op.params),
        expensive=row.expensive,
        fast_path=row.fast_path and dtype.compute_cpp == "float",
        discontinuous=row.discontinuous or not dtype.is_float,
        snippet=row if row.body else None,
    )


def _cast(node: Node) -> ScalarCall:
    have, want = node.inputs[0].dtype, node.output.dtype
    return ScalarCall("cast", to=want.cpp, fast_path=(have, want) in _FAST_CASTS, discontinuous=not want.is_float)


KERNELS = tuple(
    CpuKernel(op, emit_elementwise, (_ELEMENTWISE,), reads=_reads, scalar=scalar, in_place=0)
    for op, scalar in ((Cast, _cast), (Elementwise, _function))
)
