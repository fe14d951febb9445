"""Reads the logits of attention: scale * q @ k^T, with or without a mask."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeGuard

import onnx_ir as ir

from ortisan.converter.fuse.formula import Mismatch
from ortisan.converter.fuse.scalar import constant_scalar

SWAP_LAST_TWO = (0, 1, 3, 2)
VIEW_TO_TRANSPOSED = (0, 2, 3, 1)
VIEW_TO_HEADS = (0, 2, 1, 3)
# Adding a number this low to any sensible float32 logit gives that number.
_ABSORBING = -1e30


@dataclass(frozen=True)
class Mask:
    """`kind` is none, additive or boolean; `nodes` are those that apply the mask."""

    kind: str = "none"
    value: ir.Value | None = None
    nodes: tuple[ir.Node, ...] = ()


@dataclass(frozen=True)
class Scores:
    """`keys` is [B,H,T,D], or the [B,T,H,D] view when `is_view`; `transpose` makes k^T of it."""

    q: ir.Value
    keys: ir.Value
    is_view: bool
    transpose: ir.Node
    scale: float
    nodes: tuple[ir.Node, ...]


def read_logits(logits: ir.Value, *, guarded: bool) -> tuple[ir.Value, Mask]:
    """Splits logits into scores and mask."""
    node = logits.producer()
    if _is(node, "Add"):
        return _read_added_mask(node, guarded)
    if _is(node, "Where"):
        return _read_chosen_mask(node, guarded)
    return logits, Mask()


def _read_added_mask(node: ir.Node, guarded: bool) -> tuple[ir.Value, Mask]:
    a, b = node.inputs
    for scores, mask in ((a, b), (b, a)):
        if scores is None or mask is None or not _is(_unscaled(scores)[0].producer(), "MatMul"):
            continue
        choice = mask.producer()
        if _is(choice, "Where") and _uses(mask) == 1 and constant_scalar(choice.inputs[1]) == 0.0:
            hidden = choice.inputs[2]
            if hidden is not None and _means_boolean(hidden, guarded):
                return scores, Mask("boolean", choice.inputs[0], (choice, node))
        return scores, Mask("additive", mask, (node,))
    raise Mismatch("neither part of the sum before its softmax is a product of q and k")


def _read_chosen_mask(node: ir.Node, guarded: bool) -> tuple[ir.Value, Mask]:
    condition, scores, hidden = node.inputs
    if condition is None or scores is None or hidden is None:
        raise Mismatch("an input of the Where before its softmax is missing")
    if constant_scalar(scores) is not None:
        raise Mismatch("the mask of its Where is true where a key is hidden")
    if constant_scalar(hidden) is None or not _means_boolean(hidden, guarded):
        raise Mismatch(f"hidden logits become '{hidden.name}', which is not a number that a boolean mask stands for")
    return scores, Mask("boolean", condition, (node,))


def _means_boolean(hidden: ir.Value, guarded: bool) -> bool:
    """Whether hiding keys by this number is what a boolean mask does.

    There a row that sees nothing is uniform, or zero if guarded. A finite number never triggers the guard, and -inf
    without a guard gives NaN: neither is a boolean mask.
    """
    number = constant_scalar(hidden)
    if number is None or hidden.dtype != ir.DataType.FLOAT:
        return False
    return number == -math.inf if guarded else -math.inf < number <= _ABSORBING


def read_scores(value: ir.Value) -> Scores:
    """Reads scale * (q * a) @ (k^T * b), every factor but the product optional."""
    product_value, scale, nodes = _unscaled(value)
    product = product_value.producer()
    if not _is(product, "MatMul"):
        raise Mismatch(f"its softmax is over '{value.name}', which is not a scaled product of q and k")
    left, right = product.inputs
    if left is None or right is None:
        raise Mismatch("a factor of its scores is missing")
    q, q_scale, q_nodes = _unscaled(left, only_private=True)
    transposed, k_scale, k_nodes = _unscaled(right, only_private=True)
    transpose = transposed.producer()
    if not _is(transpose, "Transpose") or transpose.inputs[0] is None:
        raise Mismatch(f"the second factor of its scores, '{right.name}', is not a transposed key")
    perm = tuple(transpose.attributes.get_ints("perm", ()))
    if perm not in (SWAP_LAST_TWO, VIEW_TO_TRANSPOSED):
        raise Mismatch(f"its key is transposed by {list(perm)}, expected {list(SWAP_LAST_TWO)}")
    keys: ir.Value = transpose.inputs[0]
    scale *= q_scale * k_scale
    nodes = [*q_nodes, *k_nodes, transpose, product, *nodes]
    if perm == SWAP_LAST_TWO:
        keys, more_scale, more_nodes = _unscaled(keys, only_private=True)
        scale, nodes = scale * more_scale, [*more_nodes, *nodes]
    return Scores(q, keys, perm == VIEW_TO_TRANSPOSED, transpose, scale, tuple(nodes))


def _unscaled(value: ir.Value, *, only_private: bool = False) -> tuple[ir.Value, float, list[ir.Node]]:
    """Goes back through products with, and quotients by, a number; if `only_private`, while nothing else uses them."""
    scale, nodes = 1.0, list[ir.Node]()
    while _is(node := value.producer(), "Mul") or _is(node, "Div"):
        x, by = node.inputs
        number = constant_scalar(by)
        if x is None or by is None or number is None or number == 0 or _rank(by) > _rank(x):
            break
        if only_private and _uses(value) > 1:
            break
        scale *= number if node.op_type == "Mul" else 1.0 / number
        nodes.insert(0, node)
        value = x
    return value, scale, nodes


def _is(node: ir.Node | None, op_type: str) -> TypeGuard[ir.Node]:
    return node is not None and node.domain == "" and node.op_type == op_type


def _rank(value: ir.Value) -> int:
    return 0 if value.shape is None else value.shape.rank()


def _uses(value: ir.Value) -> int:
    return len(value.uses()) + value.is_graph_output()
