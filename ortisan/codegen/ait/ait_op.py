"""The row of an op: what speaks against it, what it is composed of, and its AITemplate call."""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.ait.calls import WriteCall
from ortisan.codegen.ait.composer import Compose
from ortisan.codegen.ait.rules import Rule
from ortisan.registry.graph import Op


@dataclass(frozen=True)
class AitOp:
    """An op that AITemplate has (`rule` and `call`), or that is composed of ops that it has (`compose`), or both.

    Without `compose` the op is taken as it is.
    """

    op: type[Op]
    rule: Rule | None = None
    compose: Compose | None = None
    call: WriteCall | None = None
