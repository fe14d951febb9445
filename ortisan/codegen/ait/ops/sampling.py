"""Images between their pixels: AITemplate resizes by other rules, and has neither samples at a grid nor regions."""

from __future__ import annotations

from ortisan.codegen.ait.ait_op import AitOp

OPS: tuple[AitOp, ...] = ()
