"""Reads the logits of attention: the scaled product of q and k, with or without a cap, with any number of masks.

scale * (q * a) @ (k^T * b)  ->  cap * tanh(. / cap)  ->  + mask, or Where(seen, ., number), once or more
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeGuard

import onnx_ir as ir

from ortisan.converter.fuse.formula import Mismatch
from ortisan.converter.fuse.scalar import constant_scalar

SWAP_LAST_TWO = (0, 1, 3, 2)
VIEW_TO_TRANSPOSED = (0, 2, 3, 1)
VIEW_TO_HEADS = (0, 2, 1, 3)
# Adding a number this low to any ordinary float32 logit gives that number.
_ABSORBING = -1e30


@dataclass(frozen=True)
class Added:
    """A mask that is added to the logits."""

    value: ir.Value


@dataclass(frozen=True)
class Chosen:
    """Logits become `hidden` where `condition` is false, or true if `inverted`."""

    condition: ir.Value
    hidden: float
    inverted: bool = False


Mask = Added | Chosen


@dataclass(frozen=True)
class Logits:
    """What the logits are made of. `keys` is [B,H,T,D], or the [B,T,H,D] view when `is_view`."""

    q: ir.Value
    keys: ir.Value
    is_view: bool
    scale: float
    nodes: tuple[ir.Node, ...]
    """The nodes from the product of q and k onwards; none of their results may be used elsewhere."""
    cap: float = 0.0
    masks: tuple[Mask, ...] = ()


def read_logits(value: ir.Value) -> Logits:
    """Walks back from the logits to q and k."""
    node = value.producer()
    if _is(node, "Add"):
        return _read_sum(node)
    if _is(node, "Where"):
        return _read_choice(node)
    if _is(node, "Cast") and node.inputs[0] is not None and _is_float(node.inputs[0]) and _is_float(value):
        return _with(read_logits(node.inputs[0]), node)
    if _is(node, "Mul") or _is(node, "Div"):
        return _read_scaled(node, value)
    if _is(node, "MatMul"):
        return _read_product(node)
    raise Mismatch(f"its softmax is over '{value.name}', which is not a scaled product of q and k")


def _with(logits: Logits, *nodes: ir.Node) -> Logits:
    return replace(logits, nodes=(*logits.nodes, *nodes))


def _read_sum(node: ir.Node) -> Logits:
    a, b = node.inputs
    for scores, mask in ((a, b), (b, a)):
        if scores is None or mask is None:
            continue
        try:
            inner = read_logits(scores)
        except _NoProduct:
            raise
        except Mismatch:
            continue
        return replace(_with(inner, node), masks=(*inner.masks, _added(mask)))
    raise Mismatch("neither operand of the sum before its softmax is a product of q and k")


class _NoProduct(Mismatch):
    """There is a product, but not of q and k, so no other operand needs to be tried."""


def _added(mask: ir.Value) -> Mask:
    """Adding Where(seen, 0, number) hides keys if the number absorbs the logit."""
    choice = mask.producer()
    if not _is(choice, "Where") or choice.inputs[0] is None or mask.dtype != ir.DataType.FLOAT:
        return Added(mask)
    for inverted, seen, hidden in ((False, 1, 2), (True, 2, 1)):
        number = constant_scalar(choice.inputs[hidden])
        if constant_scalar(choice.inputs[seen]) == 0.0 and number is not None and number <= _ABSORBING:
            return Chosen(choice.inputs[0], number, inverted)
    return Added(mask)


def _read_choice(node: ir.Node) -> Logits:
    condition, first, second = node.inputs
    for inverted in (False, True):
        scores, hidden = (second, first) if inverted else (first, second)
        number = constant_scalar(hidden)
        if condition is None or scores is None or number is None:
            continue
        inner = _with(read_logits(scores), node)
        return replace(inner, masks=(*inner.masks, Chosen(condition, number, inverted)))
    raise Mismatch("the Where before its softmax does not choose between logits and a number")


def _read_scaled(node: ir.Node, value: ir.Value) -> Logits:
    x, by = node.inputs
    number = constant_scalar(by)
    if x is None or by is None or number is None or number == 0 or _rank(by) > _rank(x):
        raise Mismatch(f"its softmax is over '{value.name}', which is not a scaled product of q and k")
    factor = number if node.op_type == "Mul" else 1.0 / number
    if _is(curve := x.producer(), "Tanh") and curve.inputs[0] is not None:
        inner = _plain(read_logits(curve.inputs[0]), "capped")
        return replace(_with(inner, curve, node), scale=inner.scale * factor, cap=factor)
    inner = _plain(read_logits(x), "scaled")
    return replace(_with(inner, node), scale=inner.scale * factor)


def _plain(logits: Logits, what: str) -> Logits:
    if logits.masks or logits.cap:
        raise Mismatch(f"its logits are {what} after a mask or a cap")
    return logits


def _read_product(product: ir.Node) -> Logits:
    left, right = product.inputs
    if left is None or right is None:
        raise Mismatch("a factor of its scores is missing")
    q, q_scale = _unscaled(left)
    transposed, k_scale = _unscaled(right)
    transpose = transposed.producer()
    if not _is(transpose, "Transpose") or transpose.inputs[0] is None:
        raise _NoProduct(f"the second factor of its scores, '{right.name}', is not a transposed key")
    perm = tuple(transpose.attributes.get_ints("perm", ()))
    if perm not in (SWAP_LAST_TWO, VIEW_TO_TRANSPOSED):
        raise _NoProduct(f"its key is transposed by {list(perm)}, expected {list(SWAP_LAST_TWO)}")
    keys: ir.Value = transpose.inputs[0]
    scale = q_scale * k_scale
    if perm == SWAP_LAST_TWO:
        keys, more_scale = _unscaled(keys)
        scale *= more_scale
    return Logits(q, keys, perm == VIEW_TO_TRANSPOSED, scale, (product,))


def _unscaled(value: ir.Value) -> tuple[ir.Value, float]:
    """Walks back through multiplications and divisions by a number that have no other use."""
    scale = 1.0
    while _is(node := value.producer(), "Mul") or _is(node, "Div"):
        x, by = node.inputs
        number = constant_scalar(by)
        if x is None or by is None or number is None or number == 0 or _rank(by) > _rank(x) or _uses(value) > 1:
            break
        scale *= number if node.op_type == "Mul" else 1.0 / number
        value = x
    return value, scale


def is_swallowing(number: float) -> bool:
    """Whether adding any ordinary logit to a hidden logit of this value leaves it unchanged."""
    return number <= _ABSORBING


def _is(node: ir.Node | None, op_type: str) -> TypeGuard[ir.Node]:
    return node is not None and node.domain == "" and node.op_type == op_type


def _is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _rank(value: ir.Value) -> int:
    return 0 if value.shape is None else value.shape.rank()


def _uses(value: ir.Value) -> int:
    return len(value.uses()) + value.is_graph_output()
