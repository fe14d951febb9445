"""Pure elementwise groups: one loop over memory for the whole chain, with broadcasting and several outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ortisan.codegen.cpu.fuse import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param
from ortisan.codegen.cpu.loops.chain import Load, Store, build_chain
from ortisan.codegen.cpu.loops.strips import Segment, Strip, cut
from ortisan.codegen.cpu.views import continues, walk
from ortisan.registry.builder import is_constant
from ortisan.registry.dims import Dim, product
from ortisan.registry.graph import Value


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
    return KernelSpec("cpu/elementwise.cpp.j2", group.name, body, tuple(arguments))


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
