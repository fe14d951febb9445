"""What becomes of a product's finished sums: the bias, then a chain of elementwise steps, in loops over one tile.

A cheap chain is one loop over the tile's rows. An expensive function has a loop of its own, over all of the tile,
where enough elements are under way to hide its long dependency chain.
"""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.cpu.emit.chain import Chain, Load, build_chain
from ortisan.codegen.cpu.emit.strips import Segment, Strip, cut
from ortisan.codegen.cpu.fusion import Group, operand_kind, rows_and_columns
from ortisan.codegen.cpu.kernel import Argument, EmitContext, Param
from ortisan.registry.graph import Node, Value
from ortisan.registry.ops import Elementwise, Gemm

_SUM = "acc"


@dataclass(frozen=True)
class Loop:
    """A segment over one tile; `flat` when it needs no rows, `sums` when it reads the product's sums."""

    segment: Segment
    flat: bool
    sums: bool


@dataclass(frozen=True)
class Epilogue:
    chain: Chain
    loops: tuple[Loop, ...]
    strips: tuple[Strip, ...]


def build_epilogue(group: Group, anchor: Node, context: EmitContext) -> tuple[Epilogue, list[Param], list[Argument]]:
    rows, columns = rows_and_columns(anchor.output.shape)

    def access(value: Value) -> Load:
        return Load("", "", operand_kind(value.shape, rows, columns) or "")

    nodes = list(group.chain)
    given = {anchor.output: _SUM}
    if isinstance(anchor.op, Gemm) and anchor.op.bias:
        raw = Value("sum", anchor.output.type)
        nodes.insert(0, Node(Elementwise("ADD"), (raw, anchor.inputs[2]), anchor.outputs, anchor.origin))
        given = {raw: _SUM}
    chain, params, arguments = build_chain(nodes, group.outputs, given, context, access)
    segments, strips = cut(chain, alone=True)
    return Epilogue(chain, tuple(map(_loop, segments)), strips), params, arguments


def _loop(segment: Segment) -> Loop:
    read = {operand for step in segment.steps for operand in step.operands} | {store.value for store in segment.stores}
    flat = not segment.stores and all(load.kind == "scalar" for load in segment.loads)
    return Loop(segment, flat, _SUM in read)
