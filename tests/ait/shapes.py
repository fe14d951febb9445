"""The dims that small graphs of tests have, their bounds, and shapes of them."""

from __future__ import annotations

from ortisan.registry.dims import Dim, symbol

B, S, P = symbol("b"), symbol("s"), symbol("p")
SIZES = {"b": 2, "s": 5, "p": 3}
BOUNDS = {"b": (1, 4), "s": (1, 8), "p": (0, 8)}

X: tuple[Dim, ...] = (B, S, 16)
HEADS: tuple[Dim, ...] = (B, 4, S, 8)
KEYS: tuple[Dim, ...] = (B, 4, P + S, 8)
GROUP: tuple[Dim, ...] = (B, 2, P + S, 8)
MASK: tuple[Dim, ...] = (B, 1, S, P + S)
PAST: tuple[Dim, ...] = (B, 4, P, 8)
NEEDS_P = (B, P)
