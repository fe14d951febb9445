"""What AITemplate refuses, or accepts and computes wrongly: the rules for every node, and what an op's rule is made of.

They run before AITemplate is asked; it is asked about all that passes them. The reasons are what users read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ortisan.codegen.ait.dims import Bounds
from ortisan.registry.dims import is_static, symbols_of
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Value

FLOATS = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32)
_KNOWN = (*FLOATS, DType.INT32, DType.INT64, DType.BOOL)
Reason = str | None
Rule = Callable[[Node, Bounds], Reason]
"""Why AITemplate can't be given a node of one op; None when nothing speaks against it."""


def why_not(rule: Rule | None, node: Node, bounds: Bounds) -> Reason:
    """Why AITemplate can't be given this node, `rule` being its op's, or None where AITemplate lacks the op."""
    if rule is None:
        return f"AITemplate has no {node.op.name}"
    return why_no_kernel(node, bounds) or rule(node, bounds)


def why_no_kernel(node: Node, bounds: Bounds) -> Reason:
    """What speaks against a node whoever computes it: types, scalars, empty tensors, dims without bounds."""
    values = (*node.inputs, *node.outputs)
    if reason := next((reason for value in values if (reason := _tensor(value))), None):
        return reason
    for name in sorted({name for value in values for dim in value.shape for name in symbols_of(dim)}):
        if name not in bounds:
            return f"the dim {name} is no dim of the model's inputs, so it has no upper bound, which AITemplate needs"
    return None


def _tensor(value: Value) -> Reason:
    if value.dtype not in _KNOWN:
        return f"AITemplate has no {value.dtype.value}"
    if not value.shape and value.data is None:
        return "AITemplate has no tensors without dims"
    for dim in value.shape:
        if is_static(dim) and dim == 0:
            return f"AITemplate has no empty tensors, and {value.type} is one"
    return None


def takes_all(node: Node, bounds: Bounds) -> Reason:
    """The rule of ops that AITemplate takes for every type and shape it has."""
    return None


def takes_floats(node: Node, bounds: Bounds) -> Reason:
    """The rule of ops that AITemplate has for floats only, in every shape."""
    return floats(node)


def floats(node: Node) -> Reason:
    for value in (*node.inputs, *node.outputs):
        if value.dtype not in FLOATS:
            return f"AITemplate's {node.op.name} takes float16, bfloat16 and float32, not {value.dtype.value}"
    return None


def static(dims: Sequence[object], what: str) -> Reason:
    return None if all(isinstance(dim, int) for dim in dims) else f"AITemplate needs {what} known when it compiles"
