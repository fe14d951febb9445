"""A fusion group: the nodes of the op graph that run as one kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ortisan.registry.dims import Dim, product
from ortisan.registry.graph import Node, Value


@dataclass(frozen=True, eq=False)
class Group:
    """`anchor` is the node that is not elementwise, if any; `chain` are the elementwise ones, in order."""

    anchor: Node | None
    chain: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    members: tuple[Group, ...] = ()
    """The groups that this one joins, if it does: products of one input, whose first has the anchor."""
    before: Group | None = None
    """The group that makes the anchor's first input in the same kernel: nobody else reads it, so it is never stored."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        if self.members:
            return tuple(node for group in self.members for node in group.nodes)
        own = (*((self.anchor,) if self.anchor else ()), *self.chain)
        return (*self.before.nodes, *own) if self.before else own

    @property
    def name(self) -> str:
        """The op's name, with what was fused to it."""
        if self.members:
            return "_and_".join(group.name for group in self.members)
        if self.before:
            return f"{self.before.name}_then_{replace(self, before=None).name}"
        names = [node.op.name for node in self.nodes]
        return "_".join([names[0], *(name.removeprefix("elementwise.") for name in names[1:])])


def rows_and_columns(shape: tuple[Dim, ...]) -> tuple[Dim, Dim]:
    """A tensor as a matrix: all dims but the last are its rows."""
    return product(shape[:-1]), shape[-1] if shape else 1


def operand_kind(shape: tuple[Dim, ...], rows: Dim, columns: Dim) -> str | None:
    """How an epilogue reads an operand of a rows x columns product, or None when it can't."""
    elements, (_, last) = product(shape), rows_and_columns(shape)
    if elements == 1:
        return "scalar"
    if last == columns and elements == product((rows, columns)):
        return "full"
    if last == columns and elements == columns:
        return "row"
    if last == 1 and elements == rows:
        return "column"
    return None
