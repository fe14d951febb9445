"""Which scalar functions are expensive on a CPU."""

from __future__ import annotations

from collections.abc import Iterable

from ortisan.registry.graph import Node
from ortisan.registry.ops import Elementwise

EXPENSIVE = frozenset(
    {"exp", "expm1", "log", "log1p", "pow", "sigmoid", "silu", "tanh", "erf", "gelu", "fastgelu", "mish", "softplus"}
    | {"sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "elu", "selu", "celu"}
)
"""C++ functions of dozens of instructions, by the names in templates/cpu/scalar.h."""


def is_expensive(nodes: Iterable[Node]) -> bool:
    """Whether one of them is."""
    return any(isinstance(node.op, Elementwise) and node.op.row.cpp in EXPENSIVE for node in nodes)
