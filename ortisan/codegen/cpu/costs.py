"""Which scalar functions are expensive on a CPU, and which have a quicker version for common arguments."""

from __future__ import annotations

from collections.abc import Iterable

from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node
from ortisan.registry.ops import Cast, Elementwise

EXPENSIVE = frozenset(
    {"exp", "expm1", "log", "log1p", "pow", "sigmoid", "silu", "tanh", "erf", "gelu", "fastgelu", "mish", "softplus"}
    | {"sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "elu", "selu", "celu"}
)
"""C++ functions of dozens of instructions, by the names in templates/cpu/scalar.h."""

_COMMON = frozenset({"sin", "cos", "tan", "log"})
_COMMON_CASTS = frozenset({(DType.INT64, DType.FLOAT32), (DType.FLOAT32, DType.INT64)})


def is_expensive(nodes: Iterable[Node]) -> bool:
    """Whether one of them is."""
    return any(isinstance(node.op, Elementwise) and node.op.row.cpp in EXPENSIVE for node in nodes)


def has_common_version(node: Node) -> bool:
    """Whether a loop tries a version for common arguments, and runs again with the whole function when one is rare."""
    if isinstance(node.op, Cast):
        return (node.inputs[0].dtype, node.output.dtype) in _COMMON_CASTS
    if not isinstance(node.op, Elementwise):
        return False
    return node.op.row.cpp in _COMMON and node.output.dtype.compute_cpp == "float"
