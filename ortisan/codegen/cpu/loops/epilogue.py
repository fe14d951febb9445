"""What becomes of a product's finished sums: the bias, then a chain of elementwise steps, in one loop over a tile."""

from __future__ import annotations

from ortisan.codegen.cpu.fuse import Group, operand_kind, rows_and_columns
from ortisan.codegen.cpu.kernel import Argument, EmitContext, Param
from ortisan.codegen.cpu.loops.chain import Chain, Load, build_chain
from ortisan.registry.graph import Node, Value
from ortisan.registry.ops import Elementwise, Gemm

_SUM = "acc"


def build_epilogue(group: Group, anchor: Node, context: EmitContext) -> tuple[Chain, list[Param], list[Argument]]:
    rows, columns = rows_and_columns(anchor.output.shape)

    def access(value: Value) -> Load:
        return Load("", "", operand_kind(value.shape, rows, columns) or "")

    nodes = list(group.chain)
    given = {anchor.output: _SUM}
    if isinstance(anchor.op, Gemm) and anchor.op.bias:
        raw = Value("sum", anchor.output.type)
        nodes.insert(0, Node(Elementwise("ADD"), (raw, anchor.inputs[2]), anchor.outputs, anchor.origin))
        given = {raw: _SUM}
    return build_chain(nodes, group.outputs, given, context, access)
