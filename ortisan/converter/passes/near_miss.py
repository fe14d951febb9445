"""Why a pattern that nearly fitted was not applied."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NearMiss:
    """`pattern` was not applied at `node` (a node name) because of `reason`."""

    pattern: str
    node: str
    reason: str
