"""Scaled dot-product attention, written out.

    y = softmax(cap(scale * q @ k^T) [+ mask]) @ v     q [B,H,S,D], k [B,H,T,D], v [B,H,T,E], masks to [B,H,S,T]

The scale may sit on the scores, on q, on k or k^T, or be split between them. Masks are added, or chosen by a Where;
several become one. An IsNaN/Where guard after the softmax turns rows of NaN into zeros, among them those without any
visible key where hidden logits are -inf. k^T is a Transpose of k, or of the [B,T,H,D] view that k itself would be
transposed from. k and v may be the repetition of fewer heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter.pattern import Var

from ortisan.converter.fuse.formula import Bindings, Formula, Fused, Mismatch
from ortisan.converter.fuse.heads import unrepeated
from ortisan.converter.fuse.logits import (
    SWAP_LAST_TWO,
    VIEW_TO_HEADS,
    Added,
    Chosen,
    Logits,
    Mask,
    is_swallowing,
    read_logits,
)
from ortisan.converter.fuse.outline import AttributeValue
from ortisan.converter.fuse.scalar import constant_scalar
from ortisan.converter.passes.origin import set_origins
from ortisan.converter.unfuse.build import StandardOps

Dim = int | ir.SymbolicDim


@dataclass(frozen=True)
class _Attention(Fused):
    """An attention as it was matched, with all that is needed to rewrite it as the body of the fused node."""

    logits: Logits | None = None
    v: ir.Value | None = None
    guarded: bool = False


class Attention(Formula):
    """Attributes of the fused node: scale; cap; mask: none, additive or boolean; hidden; guarded.

    The logits are scale * q @ k^T, then cap * tanh(logits / cap) if cap is not 0. An additive mask is added to them. A
    boolean mask is true where a key is seen; other logits become `hidden`. Then comes a plain softmax. If `guarded`, a
    row of weights that is NaN is zero.
    """

    op_type = "Attention"

    def forms(self) -> Sequence[Callable[..., Any]]:
        def plain(op: Any, logits: Any, v: Any) -> Any:
            return op.MatMul(op.Softmax(logits, _outputs=["weights"]), v)

        def narrowed(op: Any, logits: Any, v: Any) -> Any:
            return op.MatMul(op.Cast(op.Softmax(logits, _outputs=["weights"])), v)

        def guarded(op: Any, logits: Any, v: Any) -> Any:
            weights = op.Softmax(logits, _outputs=["weights"])
            return op.MatMul(op.Where(op.IsNaN(weights), Var("zero"), weights), v)

        return [plain, narrowed, guarded]

    def read(self, values: Bindings, root: ir.Node) -> Fused:
        guarded = "zero" in values
        if guarded and constant_scalar(values["zero"]) != 0.0:
            raise Mismatch("its NaN guard does not insert zeros")
        self._check_axis(values["weights"])
        logits = read_logits(values["logits"])
        q, keys, v = _dims(logits.q, "q"), _dims(logits.keys, "k"), _dims(values["v"], "v")
        k = [keys[axis] for axis in VIEW_TO_HEADS] if logits.is_view else keys
        _check_dims(q, k, v)
        added = [mask.value for mask in logits.masks if isinstance(mask, Added)]
        types = {str(value.dtype) for value in (logits.q, logits.keys, values["v"], root.outputs[0], *added)}
        if len(types) > 1:
            raise Mismatch(f"its operands are of several types: {', '.join(sorted(types))}")
        for mask in logits.masks:
            _check_mask(mask.value if isinstance(mask, Added) else mask.condition, [*q[:3], k[2]])
        if len(logits.masks) > 1 and any(isinstance(m, Chosen) and not is_swallowing(m.hidden) for m in logits.masks):
            raise Mismatch("it has several masks, and one hides keys with a number too small to absorb the others")
        return _Attention((), {}, logits.nodes, logits, values["v"], guarded)

    def _check_axis(self, weights: ir.Value) -> None:
        softmax = weights.producer()
        default = -1 if self.opset >= 13 else 1
        axis = default if softmax is None else softmax.attributes.get_int("axis", default)
        if axis not in (-1, 3):
            raise Mismatch(f"its softmax is over axis {axis}, not over the last")

    def prepare(self, fused: Fused, nodes: list[ir.Node], graph: ir.Graph) -> tuple[Fused, list[ir.Node]]:
        """Rewrites the attention in its plainest form, after the nodes that make the fused node's inputs."""
        assert isinstance(fused, _Attention)
        assert fused.logits is not None
        assert fused.v is not None
        logits, root = fused.logits, nodes[-1]
        outside = StandardOps(root, graph, self.opset)
        k = outside.transpose(logits.keys, VIEW_TO_HEADS) if logits.is_view else logits.keys
        if logits.is_view:
            k.shape = ir.Shape([_dims(logits.keys, "k")[axis] for axis in VIEW_TO_HEADS])
        mask = _one_mask(logits.masks, outside)
        k_few, v_few = unrepeated(k), unrepeated(fused.v)
        repeated = k_few is not k and v_few is not fused.v and _dims(k_few, "k")[1] == _dims(v_few, "v")[1]
        k, v = (k_few, v_few) if repeated else (k, fused.v)
        inside = StandardOps(root, graph, self.opset)
        result = _write(logits, k, v, mask, guarded=fused.guarded, repeated=repeated, ops=inside)
        for number, node in enumerate([*outside.nodes, *inside.nodes]):
            set_origins(node, nodes)
            node.name = f"{root.name}_{node.op_type}_{number}"
            node.outputs[0].name = f"{node.name}_out"
        result.name, result.type, result.shape = root.outputs[0].name, root.outputs[0].type, root.outputs[0].shape
        ir.convenience.replace_nodes_and_values(
            graph, root, [root], [*outside.nodes, *inside.nodes], root.outputs, [result]
        )
        for node in reversed(nodes[:-1]):
            if not any(value.uses() or value.is_graph_output() for value in node.outputs):
                graph.remove(node, safe=True)
        attributes: dict[str, AttributeValue] = {
            "scale": logits.scale,
            "cap": logits.cap,
            "mask": mask.kind,
            "hidden": mask.hidden,
            "guarded": int(fused.guarded),
        }
        inputs = [logits.q, k, v, *((mask.value,) if mask.value is not None else ())]
        return replace(fused, inputs=inputs, attributes=attributes), list(inside.nodes)


@dataclass(frozen=True)
class _OneMask:
    """A mask of any kind; `hidden` is the logit of a key where a boolean mask is false."""

    kind: str = "none"
    value: ir.Value | None = None
    hidden: float = 0.0


def _one_mask(masks: Sequence[Mask], ops: StandardOps) -> _OneMask:
    """Combines all masks into one."""
    if not masks:
        return _OneMask()
    if len(masks) == 1 and isinstance(masks[0], Chosen):
        return _OneMask("boolean", _seen(masks[0], ops), masks[0].hidden)
    total: ir.Value | None = None
    for mask in masks:
        if isinstance(mask, Added):
            total = mask.value if total is None else ops.add(total, mask.value)
        else:
            like = total or next(m.value for m in masks if isinstance(m, Added))
            sums = total or ops.like(0.0, like, "visible")
            total = ops.typed(ops.op("Where", [_seen(mask, ops), sums, ops.like(mask.hidden, like, "hidden")]), like)
    return _OneMask("additive", total)


def _seen(mask: Chosen, ops: StandardOps) -> ir.Value:
    if not mask.inverted:
        return mask.condition
    before = mask.condition.producer()
    if before is not None and (before.domain, before.op_type) == ("", "Not") and before.inputs[0] is not None:
        return before.inputs[0]
    return ops.typed(ops.op("Not", [mask.condition]), mask.condition)


def _write(
    logits: Logits,
    k: ir.Value,
    v: ir.Value,
    mask: _OneMask,
    *,
    guarded: bool,
    repeated: bool,
    ops: StandardOps,
) -> ir.Value:
    """The attention in ONNX ops; returns its result."""
    q = logits.q
    if repeated:
        k, v = (_repeat(x, _dims(q, "q")[1], ops) for x in (k, v))
    scores = ops.matmul(q, ops.transpose(k, SWAP_LAST_TWO))
    if logits.scale != 1.0:
        scores = ops.mul(scores, ops.like(logits.scale, q, "scale"))
    if logits.cap:
        cap = ops.like(logits.cap, q, "cap")
        scores = ops.mul(ops.typed(ops.op("Tanh", [ops.typed(ops.op("Div", [scores, cap]), q)]), q), cap)
    if mask.kind == "additive" and mask.value is not None:
        scores = ops.add(scores, mask.value)
    elif mask.value is not None:
        scores = ops.typed(ops.op("Where", [mask.value, scores, ops.like(mask.hidden, q, "hidden")]), q)
    weights = ops.typed(ops.op("Softmax", [scores], {"axis": 3 if ops.opset < 13 else -1}), q)
    if guarded:
        zero = ops.like(0.0, q, "zero")
        weights = ops.typed(ops.op("Where", [ops.op("IsNaN", [weights]), zero, weights]), q)
    return ops.matmul(weights, v)


def _repeat(x: ir.Value, heads: Dim, ops: StandardOps) -> ir.Value:
    """Repeats the heads of x so that there are `heads` of them."""
    few, size = _dims(x, "k")[1], _dims(x, "k")[3]
    assert isinstance(heads, int)
    assert isinstance(few, int)
    assert isinstance(size, int)
    target = ops.constant(np.array([1, 1, heads // few, 1, 1], np.int64), "repeats")
    repeated = ops.typed(ops.op("Expand", [ops.unsqueeze(x, [2]), target]), x)
    return ops.reshape(repeated, [0, heads, -1, size])


def _dims(value: ir.Value, what: str) -> list[Dim]:
    if value.shape is None:
        raise Mismatch(f"the shape of its {what} ('{value.name}') is unknown")
    if value.shape.rank() != 4:
        raise Mismatch(f"its {what} ('{value.name}') has {value.shape.rank()} dims, expected 4")
    return list(value.shape)


def _may_be_equal(a: Dim, b: Dim) -> bool:
    return a == b or not (isinstance(a, int) and isinstance(b, int))


def _is_equal(a: Dim, b: Dim) -> bool:
    return a == b and not (isinstance(a, ir.SymbolicDim) and a.value is None)


def _check_dims(q: list[Dim], k: list[Dim], v: list[Dim]) -> None:
    """Batch and heads could broadcast, so they must be provably equal; the other dims have to be equal anyway."""
    for what, a, b, same in (
        ("batch of q and k", q[0], k[0], _is_equal),
        ("batch of q and v", q[0], v[0], _is_equal),
        ("head count of q and k", q[1], k[1], _is_equal),
        ("head count of q and v", q[1], v[1], _is_equal),
        ("head size of q and k", q[3], k[3], _may_be_equal),
        ("length of k and v", k[2], v[2], _may_be_equal),
    ):
        if not same(a, b):
            raise Mismatch(f"the {what} are not known to be equal: {a} and {b}")


def _check_mask(mask: ir.Value, logits: list[Dim]) -> None:
    """Checks that the mask broadcasts to the logits; the op guards whatever is unknown here."""
    if mask.shape is None:
        return
    dims = list(mask.shape)
    fits = len(dims) <= 4 and all(
        dim == 1 or _may_be_equal(dim, target) for dim, target in zip(reversed(dims), reversed(logits), strict=False)
    )
    if not fits:
        raise Mismatch(f"its mask ('{mask.name}') of shape {mask.shape} does not fit {ir.Shape(logits)}")
    for dim, target in list(zip(reversed(dims), reversed(logits), strict=False))[2:]:
        if isinstance(dim, int) and dim > 1 and not isinstance(target, int):
            raise Mismatch(f"its mask ('{mask.name}') of shape {mask.shape} may be larger than {ir.Shape(logits)}")
