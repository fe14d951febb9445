"""Straightens a transpose of the last two axes that takes a detour through fewer dims.

    Reshape(Transpose(Reshape(x [B,H,T,D], [-1,T,D]), perm 0,2,1), [B,H,D,T])  ->  Transpose(x, perm 0,1,3,2)

This is how torch's exporter writes the transposed keys of attention.
"""

from __future__ import annotations

import onnx_ir as ir
from onnxscript.rewriter import pattern

from ortisan.converter.fuse.formula import Frozen
from ortisan.converter.passes.origin import set_origins


def straighten_transposes(model: ir.Model, frozen: Frozen) -> int:
    """Replaces the detours in place. Needs shapes. Returns how many."""
    detour = pattern.Pattern(
        lambda op, x: op.Reshape(op.Transpose(op.Reshape(x, pattern.ANY_VALUE), perm=[0, 2, 1]), pattern.ANY_VALUE)
    )
    count = 0
    for graph in model.graphs():
        for root in list(graph):
            match = detour.match(model, graph, root) if root.op_type == "Reshape" else None
            if match and not any(frozen(node) for node in match.nodes) and _is_detour(match.bindings["x"], root):
                _shorten(match.bindings["x"], list(match.nodes), root, graph)
                count += 1
    return count


def _is_detour(x: ir.Value, root: ir.Node) -> bool:
    middle = root.inputs[0].producer() if root.inputs[0] is not None else None
    flat = middle.inputs[0] if middle is not None else None
    if flat is None or x.shape is None or flat.shape is None or root.outputs[0].shape is None:
        return False
    if x.shape.rank() != 4 or flat.shape.rank() != 3 or any(dim == ir.SymbolicDim(None) for dim in x.shape):
        return False
    batch, heads, rows, columns = x.shape
    return list(flat.shape)[1:] == [rows, columns] and list(root.outputs[0].shape) == [batch, heads, columns, rows]


def _shorten(x: ir.Value, nodes: list[ir.Node], root: ir.Node, graph: ir.Graph) -> None:
    transpose = ir.node("Transpose", [x], {"perm": [0, 1, 3, 2]}, name=f"{root.name}_straight")
    set_origins(transpose, reversed(nodes))
    ir.convenience.replace_nodes_and_values(graph, root, nodes, [transpose], root.outputs, transpose.outputs)
