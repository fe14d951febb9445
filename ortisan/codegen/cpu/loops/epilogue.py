"""What becomes of a product's finished sums: a chain of elementwise steps, in one loop over a tile."""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.codegen.cpu.group import operand_kind, rows_and_columns
from ortisan.codegen.cpu.kernel import Argument, EmitContext, Param
from ortisan.codegen.cpu.loops.chain import Chain, Load, build_chain
from ortisan.registry.graph import Node, Value

_SUM = "acc"


def build_epilogue(
    total: Value, nodes: Sequence[Node], outputs: Sequence[Value], context: EmitContext
) -> tuple[Chain, list[Param], list[Argument]]:
    """The chain of these nodes on `total`, the product's sums."""
    rows, columns = rows_and_columns(total.shape)

    def access(value: Value) -> Load:
        return Load("", "", operand_kind(value.shape, rows, columns) or "")

    return build_chain(nodes, outputs, {total: _SUM}, context, access)
