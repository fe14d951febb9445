"""The table of the ops that AITemplate has or that are composed of those, by the families of registry/ops."""

from __future__ import annotations

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.ops import (
    attention,
    cache,
    elementwise,
    gather,
    generate,
    images,
    move,
    products,
    reduce,
    rotary,
    rows,
    sampling,
)
from ortisan.registry.graph import Op

_FAMILIES = (attention, cache, elementwise, gather, generate, images, move, products, reduce, rotary, rows, sampling)
AIT_OPS: dict[type[Op], AitOp] = {row.op: row for family in _FAMILIES for row in family.OPS}
"""Op -> its row; what is in none stays in ONNX Runtime."""
