"""Splits batch and heads that a model merges into one dim for its products.

    MatMul(Reshape(q [B,H,S,D], [B*H,S,D]), Transpose(Reshape(k [B,H,T,D], [B*H,T,D]), perm 0,2,1))
    ->  Reshape(MatMul(q, Transpose(k, perm 0,1,3,2)), [B*H,S,T])

The Reshape moves down through products, transposes, sums, scales, casts and softmax until another Reshape undoes it.
Models that call torch.bmm or baddbmm for attention (Bloom, DeBERTa, early OPT) are written so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from ortisan.converter.fuse.formula import Frozen
from ortisan.converter.passes.cleanup import remove_unused
from ortisan.converter.passes.origin import set_origins
from ortisan.converter.unfuse.build import StandardOps

_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div"})
_Rewrite = Callable[[ir.Node, StandardOps], ir.Value | None]


def unmerge_heads(model: ir.Model, frozen: Frozen) -> int:
    """Rewrites in place; needs shapes. Returns how many nodes were rewritten."""
    opset = model.opset_imports.get("", 0)
    count = 0
    for graph in model.graphs():
        if not any(node.op_type == "Softmax" for node in graph):
            continue
        for node in list(graph):
            rewrite = _REWRITES.get(node.op_type) if node.domain == "" and not frozen(node) else None
            if rewrite is None or any(value is None for value in node.inputs):
                continue
            ops = StandardOps(node, graph, opset)
            result = rewrite(node, ops)
            if result is not None:
                _replace(node, result, ops, graph)
                count += 1
    if count:
        remove_unused(model)
    return count


def _replace(node: ir.Node, result: ir.Value, ops: StandardOps, graph: ir.Graph) -> None:
    for number, new in enumerate(ops.nodes):
        set_origins(new, [node])
        new.name = f"{node.name}_{new.op_type}_{number}"
        new.outputs[0].name = f"{new.name}_out"
    ir.convenience.replace_nodes_and_values(graph, node, [node], ops.nodes, node.outputs, [result])


def _apart(value: ir.Value | None) -> ir.Value | None:
    """The [B,H,M,N] tensor whose first two dims were merged to make `value` [B*H,M,N]."""
    node = value.producer() if value is not None else None
    if value is None or node is None or (node.domain, node.op_type) != ("", "Reshape"):
        return None
    whole = node.inputs[0]
    if whole is None or _dims(whole, 4) is None or _dims(value, 3) is None:
        return None
    return whole if _dims(whole, 4)[2:] == _dims(value, 3)[1:] else None  # type: ignore[index]


def _dims(value: ir.Value, rank: int) -> list[int | ir.SymbolicDim] | None:
    if value.shape is None or value.shape.rank() != rank:
        return None
    dims = list(value.shape)
    return None if any(isinstance(dim, ir.SymbolicDim) and dim.value is None for dim in dims[-2:]) else dims


def _merge(whole: ir.Value, node: ir.Node, dims: Sequence[int | ir.SymbolicDim], ops: StandardOps) -> ir.Value:
    """Reshapes `whole`, which has these dims, to the three dims of the node's output."""
    whole.shape = ir.Shape(list(dims))
    minus_one = ops.constant(np.array([-1], np.int64), "all")
    target = ops.op("Concat", [minus_one, _some_dims(whole, 2, 4, ops)], {"axis": 0})
    merged = ops.typed(ops.op("Reshape", [whole, target]), node.outputs[0])
    merged.shape = node.outputs[0].shape
    return merged


def _some_dims(value: ir.Value, start: int, end: int, ops: StandardOps) -> ir.Value:
    bounds = [ops.constant(np.array([bound], np.int64), "dim") for bound in (start, end, 0)]
    return ops.op("Slice", [ops.op("Shape", [value]), *bounds])


def _transpose(node: ir.Node, ops: StandardOps) -> ir.Value | None:
    whole = _apart(node.inputs[0])
    if whole is None or whole.shape is None or list(node.attributes.get_ints("perm", ())) != [0, 2, 1]:
        return None
    batch, heads, rows, columns = whole.shape
    return _merge(ops.transpose(whole, [0, 1, 3, 2]), node, [batch, heads, columns, rows], ops)


def _matmul(node: ir.Node, ops: StandardOps) -> ir.Value | None:
    a, b = (_apart(value) for value in node.inputs)
    if a is None or b is None or a.shape is None or b.shape is None or list(a.shape)[:2] != list(b.shape)[:2]:
        return None
    return _merge(ops.matmul(a, b), node, [*list(a.shape)[:3], b.shape[3]], ops)


def _unary(node: ir.Node, ops: StandardOps) -> ir.Value | None:
    whole = _apart(node.inputs[0])
    if whole is None or whole.shape is None:
        return None
    attributes = dict(node.attributes)
    if node.op_type == "Softmax":
        if node.attributes.get_int("axis", -1 if ops.opset >= 13 else 1) not in (-1, 2):
            return None
        attributes = {"axis": ir.AttrInt64("axis", 3 if ops.opset < 13 else -1)}
    return _merge(ops.typed(ops.op(node.op_type, [whole], attributes), node.outputs[0]), node, list(whole.shape), ops)


def _binary(node: ir.Node, ops: StandardOps) -> ir.Value | None:
    wholes = [_apart(value) for value in node.inputs]
    whole = wholes[0] or wholes[1]
    if whole is None or whole.shape is None or node.outputs[0].shape is None:
        return None
    merged = node.inputs[0 if wholes[0] is not None else 1]
    if merged is None or merged.shape is None or list(node.outputs[0].shape) != list(merged.shape):
        return None
    pairs = zip(node.inputs, wholes, strict=True)
    operands = [mine or _to_four_dims(value, whole, merged, ops) for value, mine in pairs]
    if any(operand is None for operand in operands):
        return None
    result = ops.typed(ops.op(node.op_type, operands), node.outputs[0])
    return _merge(result, node, list(whole.shape), ops)


def _to_four_dims(value: ir.Value | None, whole: ir.Value, merged: ir.Value, ops: StandardOps) -> ir.Value | None:
    """An operand of a merged tensor in the dims of the tensor before it was merged."""
    if value is None or value.shape is None:
        return None
    if value.shape.rank() < 3 or value.shape[0] == 1:
        return value
    heads = whole.shape[1] if whole.shape is not None else None
    if (
        value.shape.rank() != 3
        or merged.shape is None
        or value.shape[0] != merged.shape[0]
        or not isinstance(heads, int)
    ):
        return None
    split = ops.constant(np.array([-1, heads], np.int64), "batch_and_heads")
    target = ops.op("Concat", [split, _some_dims(value, 1, 3, ops)], {"axis": 0})
    return ops.typed(ops.op("Reshape", [value, target]), value)


def _reshape(node: ir.Node, ops: StandardOps) -> ir.Value | None:
    whole = _apart(node.inputs[0])
    if whole is None or whole.shape is None or node.outputs[0].shape is None or node.outputs[0].is_graph_output():
        return None
    return whole if list(whole.shape) == list(node.outputs[0].shape) else None


_REWRITES: dict[str, _Rewrite] = {
    "Transpose": _transpose,
    "MatMul": _matmul,
    "Softmax": _unary,
    "Cast": _unary,
    "Reshape": _reshape,
    **dict.fromkeys(_ELEMENTWISE, _binary),
}
