"""Key and value heads that several query heads share, as exporters repeat them.

Reshape(Expand(Unsqueeze(x [B,G,T,D], 2), [B,G,n,T,D]), [B,G*n,T,D])
"""

from __future__ import annotations

import onnx_ir as ir

from ortisan.converter.fuse.formula import Frozen
from ortisan.converter.fuse.scalar import constant_ints


def unrepeated(value: ir.Value) -> ir.Value:
    """The tensor whose heads `value` repeats equally often; otherwise `value` itself."""
    reshape = _made_by(value, "Reshape")
    expand = _made_by(reshape.inputs[0], "Expand") if reshape else None
    unsqueeze = _made_by(expand.inputs[0], "Unsqueeze") if expand else None
    x = unsqueeze.inputs[0] if unsqueeze else None
    if reshape is None or expand is None or unsqueeze is None or x is None or x.shape is None or value.shape is None:
        return value
    repeated = expand.outputs[0].shape
    if repeated is None or x.shape.rank() != 4 or value.shape.rank() != 4 or repeated.rank() != 5:
        return value
    axes = unsqueeze.attributes.get_ints("axes", None) or constant_ints(
        unsqueeze.inputs[1] if len(unsqueeze.inputs) > 1 else None
    )
    (batch, heads, length, size), many = x.shape, value.shape[1]
    if list(axes or ()) not in ([2], [-3]) or not isinstance(heads, int) or not isinstance(many, int):
        return value
    if not isinstance(size, int) or heads == 0 or many % heads or any(_is_unknown(dim) for dim in (batch, length)):
        return value
    # The head counts imply the repeats, even if the Expand takes a computed shape.
    kept = list(repeated)[:2] + list(repeated)[3:] == [batch, heads, length, size]
    return x if kept and list(value.shape) == [batch, many, length, size] else value


def share_heads(model: ir.Model, frozen: Frozen) -> int:
    """Connects Attention ops of opset 23 and later to the key and value heads before their repetition."""
    count = 0
    for node in model.graph.all_nodes():
        if (node.domain, node.op_type) != ("", "Attention") or len(node.inputs) < 3 or frozen(node):
            continue
        k, v = node.inputs[1:3]
        if k is None or v is None:
            continue
        few = unrepeated(k), unrepeated(v)
        if few[0] is not k and few[1] is not v and few[0].shape[1] == few[1].shape[1]:  # type: ignore[index]
            node.replace_input_with(1, few[0])
            node.replace_input_with(2, few[1])
            count += 1
    return count


def _made_by(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and (node.domain, node.op_type) == ("", op_type) else None


def _is_unknown(dim: int | ir.SymbolicDim) -> bool:
    return isinstance(dim, ir.SymbolicDim) and dim.value is None
