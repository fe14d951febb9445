"""Which weights of a model gain nothing by being packed for the kernels, so that they may as well be inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import onnx_ir as ir

_FEW_ROWS = 16
_LARGE = 1 << 14
"""Elements of a weight. Smaller ones are compared in no time."""


def needs_no_packing(value: ir.Value) -> bool:
    """Whether a weight may as well be an input, which is never out of date and need not be compared.

    Lookups read a table as it is. A product of few rows takes as long as it takes to read its weight, and reading it a
    second time, to compare it, costs more than its packed form gains.
    """
    count = _product(value.shape or [None])
    is_large = count is not None and count >= _LARGE
    uses = list(value.uses())
    return bool(uses) and all(_looks_up(*use) or (is_large and _has_few_rows(*use)) for use in uses)


def _looks_up(user: ir.Node, index: int) -> bool:
    return user.op_type == "Gather" and index == 0 and user.domain == ""


def _has_few_rows(user: ir.Node, index: int) -> bool:
    if user.op_type == "Transpose":
        uses = list(user.outputs[0].uses())
        return bool(uses) and all(_has_few_rows(*use) for use in uses)
    if user.op_type not in ("MatMul", "Gemm") or index != 1:
        return False
    x, weight = user.inputs[:2]
    if x is None or weight is None or x.shape is None or weight.shape is None or len(weight.shape) != 2:
        return False
    is_transposed = user.op_type == "Gemm" and "transA" in user.attributes and user.attributes["transA"].as_int()
    rows = _product(x.shape[1:] if is_transposed else x.shape[:-1])
    return rows is not None and rows <= _FEW_ROWS


def _product(sizes: Iterable[Any]) -> int | None:
    """None if a size is not known."""
    known = list(sizes)
    return math.prod(known) if all(isinstance(size, int) for size in known) else None
