"""Pure elementwise groups: one loop over memory for the whole chain, with broadcasting and several outputs."""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.cpu.emit.chain import Load, Store, build_chain
from ortisan.codegen.cpu.emit.strips import Segment, Strip, cut
from ortisan.codegen.cpu.fusion import Group
from ortisan.codegen.cpu.kernel import EmitContext, KernelSpec, Param
from ortisan.registry.builder import is_constant
from ortisan.registry.dims import Dim, product
from ortisan.registry.graph import Value

_FULL, _BROADCAST, _RUN_TIME = "full", "broadcast", "run_time"


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
    axes = merged_axes(shape, operands)
    extents = [product(shape[axis] for axis in block) for block in axes]

    def access(value: Value) -> Load:
        strides = context.printer.broadcast_strides(value.shape, shape)
        return Load("", "", "strided", tuple(strides[block[-1]] if block else "0" for block in axes))

    chain, params, arguments = build_chain(group.chain, group.outputs, {}, context, access)
    printed = context.printer.all(extents)
    segments, strips = cut(chain)
    in_strips = any(segment.interleaved for segment in segments) or bool(strips)
    body = ElementwiseContext(tuple(params), printed, chain.loads, chain.stores, segments, strips, in_strips)
    return KernelSpec("cpu/elementwise.cpp.j2", group.name, body, tuple(arguments))


def _aligned(value: Value, rank: int) -> tuple[Dim, ...]:
    return (*(1 for _ in range(rank - len(value.shape))), *value.shape)


def _kind(dim: Dim, extent: Dim) -> str:
    if dim == extent:
        return _FULL
    return _BROADCAST if dim == 1 else _RUN_TIME


def merged_axes(shape: tuple[Dim, ...], operands: list[Value]) -> list[list[int]]:
    """Neighbouring axes that every operand walks through in one stride are one loop."""
    rank = len(shape)
    kinds = [[_kind(_aligned(v, rank)[axis], shape[axis]) for v in operands] for axis in range(rank)]
    axes: list[list[int]] = []
    for axis in range(rank):
        if shape[axis] == 1:
            continue
        if axes and kinds[axes[-1][-1]] == kinds[axis] and _RUN_TIME not in kinds[axis]:
            axes[-1].append(axis)
        else:
            axes.append([axis])
    return axes or [[]]
