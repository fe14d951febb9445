"""In which order reasons are told: what began it first, what only follows from it last."""

from __future__ import annotations

import re

_FOLLOWS = re.compile("nothing to compute|the (type|rank) of '.*' is not known")
"""How the reasons of nodes begin that are left because others are."""


def follows(reason: str) -> bool:
    """Whether a node with this reason is left because of the nodes around it."""
    return _FOLLOWS.match(reason) is not None
