"""What becomes of a product's finished sums: a chain of elementwise steps, in one loop over a tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ortisan.codegen.cpu.group import operand_kind, rows_and_columns
from ortisan.codegen.cpu.kernel import Argument, EmitContext, Param
from ortisan.codegen.cpu.loops.chain import Chain, Load, build_chain
from ortisan.registry.graph import Node, Value

_SUM = "acc"


@dataclass(frozen=True)
class Clamp:
    """An epilogue that is `out = min(max(sum + bias, low), high)`, with a bias for each column."""

    bias: str
    low: str
    high: str
    out: str


def clamp_of(chain: Chain) -> Clamp | None:
    """What a chain clamps to, if that is all it does. A relu has no upper bound, a sum with a bias has none."""
    kinds = [load.kind for load in chain.loads]
    if kinds != ["row"] or len(chain.stores) != 1 or not chain.steps or chain.steps[-1].result != chain.stores[0].value:
        return None
    (load,), (store,), (add, *more) = chain.loads, chain.stores, chain.steps
    if add.function != "add" or {*add.operands} != {_SUM, load.result} or add.type != store.type or len(more) > 1:
        return None
    bounds = (f"limits<{store.type}>::negative_infinity", f"limits<{store.type}>::infinity")
    for step in more:
        if step.operands[0] != add.result or step.to or step.type != store.type:
            return None
        if step.function == "relu":
            bounds = (f"{store.type}(0)", bounds[1])
        elif step.function == "clamp" and all(
            bound.startswith(("float(", "double(", "limits<")) for bound in step.operands[1:]
        ):
            bounds = (step.operands[1], step.operands[2])
        else:
            return None
    return Clamp(load.pointer, *bounds, store.pointer)


def build_epilogue(
    total: Value, nodes: Sequence[Node], outputs: Sequence[Value], context: EmitContext
) -> tuple[Chain, list[Param], list[Argument]]:
    """The chain of these nodes on `total`, the product's sums."""
    rows, columns = rows_and_columns(total.shape)

    def access(value: Value) -> Load:
        return Load("", "", operand_kind(value.shape, rows, columns) or "")

    return build_chain(nodes, outputs, {total: _SUM}, context, access)
