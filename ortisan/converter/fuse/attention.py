"""Scaled dot-product attention, written out.

    y = softmax(scale * q @ k^T [+ mask]) @ v          q [B,H,S,D], k [B,H,T,D], v [B,H,T,Dv], mask to [B,H,S,T]

The scale may sit on the scores, on q, on k or k^T, or be split between them. The mask is added, or chosen by a Where.
An IsNaN/Where guard after the softmax turns rows without any visible key into zeros. k^T is a Transpose of k, or of
the [B,T,H,D] view that k itself would be transposed from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter.pattern import Var

from ortisan.converter.fuse.formula import Bindings, Formula, Fused, Mismatch
from ortisan.converter.fuse.logits import (
    SWAP_LAST_TWO,
    VIEW_TO_HEADS,
    VIEW_TO_TRANSPOSED,
    Mask,
    read_logits,
    read_scores,
)
from ortisan.converter.fuse.outline import AttributeValue
from ortisan.converter.fuse.scalar import constant_scalar
from ortisan.converter.origin import set_origins

Dim = int | ir.SymbolicDim


class Attention(Formula):
    """Attributes of the fused node: scale; mask: none, additive or boolean; fully_masked: softmax or zero.

    An additive mask is added to the logits. A boolean mask is true where a key is seen; other logits become the lowest
    finite number. Then comes a plain softmax. With fully_masked "zero", a row is zero where that softmax is NaN, or
    where a boolean mask shows no key.
    """

    op_type = "Attention"

    def forms(self) -> Sequence[Callable[..., Any]]:
        def plain(op: Any, logits: Any, v: Any) -> Any:
            return op.MatMul(op.Softmax(logits, _outputs=["weights"]), v)

        def guarded(op: Any, logits: Any, v: Any) -> Any:
            weights = op.Softmax(logits, _outputs=["weights"])
            return op.MatMul(op.Where(op.IsNaN(weights), Var("zero"), weights), v)

        return [plain, guarded]

    def read(self, values: Bindings, root: ir.Node) -> Fused:
        guarded = "zero" in values
        if guarded and constant_scalar(values["zero"]) != 0.0:
            raise Mismatch("its guard against NaN does not put zeros")
        self._check_axis(values["weights"])
        scores_value, mask = read_logits(values["logits"], guarded=guarded)
        scores = read_scores(scores_value)
        q, keys, v = _dims(scores.q, "q"), _dims(scores.keys, "k"), _dims(values["v"], "v")
        k = [keys[axis] for axis in VIEW_TO_HEADS] if scores.is_view else keys
        _check_dims(q, k, v)
        _check_mask(mask, [*q[:3], k[2]])
        inputs = [scores.q, scores.keys, values["v"]]
        if mask.value is not None:
            inputs.append(mask.value)
        attributes: dict[str, AttributeValue] = {
            "scale": scores.scale,
            "mask": mask.kind,
            "fully_masked": "zero" if guarded else "softmax",
        }
        return Fused(inputs, attributes, (*scores.nodes, *mask.nodes))

    def _check_axis(self, weights: ir.Value) -> None:
        softmax = weights.producer()
        default = -1 if self.opset >= 13 else 1
        axis = default if softmax is None else softmax.attributes.get_int("axis", default)
        if axis not in (-1, 3):
            raise Mismatch(f"its softmax is over axis {axis}, not over the last")

    def prepare(self, fused: Fused, graph: ir.Graph) -> Fused:
        """Makes k from the view when k^T was made from it directly: one Transpose before the fused node, one inside."""
        view = fused.inputs[1]
        transpose = next(node for node in fused.more_nodes if node.op_type == "Transpose")
        if tuple(transpose.attributes.get_ints("perm", ())) != VIEW_TO_TRANSPOSED:
            return fused
        before = ir.node("Transpose", [view], {"perm": list(VIEW_TO_HEADS)}, name=f"{transpose.name}_heads")
        k = before.outputs[0]
        k.name, k.type = f"{transpose.outputs[0].name}_heads", view.type
        k.shape = ir.Shape([_dims(view, "k")[axis] for axis in VIEW_TO_HEADS])
        inside = ir.node("Transpose", [k], {"perm": list(SWAP_LAST_TWO)}, name=transpose.name)
        for node in (before, inside):
            set_origins(node, [transpose])
        ir.convenience.replace_nodes_and_values(
            graph, transpose, [transpose], [before, inside], transpose.outputs, inside.outputs
        )
        nodes = [inside if node is transpose else node for node in fused.more_nodes]
        return replace(fused, inputs=[fused.inputs[0], k, *fused.inputs[2:]], more_nodes=nodes)


def _dims(value: ir.Value, what: str) -> list[Dim]:
    if value.shape is None:
        raise Mismatch(f"the shape of its {what} ('{value.name}') is unknown")
    if value.shape.rank() != 4:
        raise Mismatch(f"its {what} ('{value.name}') has {value.shape.rank()} dims, expected 4")
    return list(value.shape)


def _same(a: Dim, b: Dim) -> bool:
    return a == b and not (isinstance(a, ir.SymbolicDim) and a.value is None)


def _check_dims(q: list[Dim], k: list[Dim], v: list[Dim]) -> None:
    for what, a, b in (
        ("batch of q and k", q[0], k[0]),
        ("batch of q and v", q[0], v[0]),
        ("head count of q and k", q[1], k[1]),
        ("head count of q and v", q[1], v[1]),
        ("head size of q and k", q[3], k[3]),
        ("length of k and v", k[2], v[2]),
    ):
        if not _same(a, b):
            raise Mismatch(f"the {what} are not known to be equal: {a} and {b}")


def _check_mask(mask: Mask, logits: list[Dim]) -> None:
    """The mask must broadcast to the logits, and not the other way round."""
    if mask.value is None:
        return
    if mask.value.shape is None:
        raise Mismatch(f"the shape of its mask ('{mask.value.name}') is unknown")
    dims = list(mask.value.shape)
    fits = len(dims) <= 4 and all(
        dim == 1 or _same(dim, target) for dim, target in zip(reversed(dims), reversed(logits), strict=False)
    )
    if not fits:
        shape = ir.Shape(logits)
        raise Mismatch(f"its mask ('{mask.value.name}') of shape {mask.value.shape} is not known to fit {shape}")
