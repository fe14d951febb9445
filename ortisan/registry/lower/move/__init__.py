"""Ops that move elements or give them another shape."""

from __future__ import annotations

from ortisan.registry.lower.move import copies, slices, views

__all__ = ["copies", "slices", "views"]
