"""The row of an op: what speaks against it, what it is composed of, and its AITemplate call."""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.ait.calls import WriteCall
from ortisan.codegen.ait.composer import Compose
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.own import WriteKernel
from ortisan.codegen.ait.rules import Reason, Rule, why_no_kernel, why_not
from ortisan.registry.graph import Node, Op


@dataclass(frozen=True)
class AitOp:
    """An op that AITemplate has (`rule` and `call`), that we have a kernel of (`ours`), or that is composed of such
    ops (`compose`), or several of these.

    Without `compose` the op is taken as it is. AITemplate's op is taken where nothing speaks against it, else ours.
    """

    op: type[Op]
    rule: Rule | None = None
    compose: Compose | None = None
    call: WriteCall | None = None
    ours: Rule | None = None
    """Why no kernel of ours can be given a node; None as a whole where we have none for the op."""
    kernel: WriteKernel | None = None
    """Writes a kernel of ours; chains have their own (fuse_chains.py), and those who join one need none."""

    def is_ours(self, node: Node, bounds: Bounds) -> bool:
        """Whether a node of the dialect is computed by a kernel of ours."""
        return self.ours is not None and (self.call is None or why_not(self.rule, node, bounds) is not None)

    def why_not(self, node: Node, bounds: Bounds) -> Reason:
        """Why neither AITemplate nor a kernel of ours can be given a node."""
        if self.ours is not None and self.is_ours(node, bounds):
            return why_no_kernel(node, bounds) or self.ours(node, bounds)
        return why_not(self.rule, node, bounds)
