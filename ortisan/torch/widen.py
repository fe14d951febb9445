"""Makes the operands of a node agree in type where torch mixes them, as it does under autocast.

A layer norm of torch takes a bfloat16 input with float32 weights, computes in float32 and gives bfloat16. In ONNX one
type parameter stands for all of them, so the narrow operands are cast, and the result is cast back. So are operands of
bfloat16 where nothing computes with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir

_NOT_NARROW = frozenset(
    """
    Conv ConvTranspose MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool Resize GridSample TopK CumSum
    BatchNormalization InstanceNormalization LRN LSTM GRU RNN ScatterND ScatterElements GatherND NonZero Einsum Range
    """.split()  # noqa: SIM905  # a table reads better without quotes
)
"""What Ortisan leaves to ONNX Runtime, which has no bfloat16 for it on a CPU."""

_WIDTH = {ir.DataType.BFLOAT16: 1, ir.DataType.FLOAT16: 1, ir.DataType.FLOAT: 2, ir.DataType.DOUBLE: 3}


def widen_mixed_nodes(model: ir.Model) -> int:
    """Casts, in place, to the widest type among operands of one type parameter; returns how many nodes had any."""
    versions = model.opset_imports
    return sum(_widen(node, versions.get(node.domain, 1)) for node in list(model.graph.all_nodes()))


def _widen(node: ir.Node, version: int) -> bool:
    if node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type, node.domain):
        return False
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return False
    words = _words(schema.inputs, len(node.inputs))
    changed = False
    for word in dict.fromkeys(words):
        own = [i for i, w in enumerate(words) if w == word and node.inputs[i] is not None]
        types = {value.dtype for i in own if (value := node.inputs[i]) is not None}
        if not types or not all(dtype in _WIDTH for dtype in types):
            continue
        if len(types) < 2 and not (ir.DataType.BFLOAT16 in types and _is_too_narrow(node, schema, word)):
            continue
        widest = max(types, key=lambda dtype: _WIDTH[dtype] if dtype is not None else 0)
        if widest is None or _WIDTH[widest] == 1:
            widest = ir.DataType.FLOAT
        _cast_inputs(node, own, widest)
        _cast_outputs(node, [i for i, w in enumerate(_words(schema.outputs, len(node.outputs))) if w == word], widest)
        changed = True
    return changed


def _is_too_narrow(node: ir.Node, schema: onnx.defs.OpSchema, word: str) -> bool:
    allowed = [each.allowed_type_strs for each in schema.type_constraints if each.type_param_str == word]
    return node.op_type in _NOT_NARROW or "tensor(bfloat16)" not in (allowed[0] if allowed else [word])


def _words(formal: Sequence[onnx.defs.OpSchema.FormalParameter], count: int) -> list[str]:
    """The type parameter of each actual one; the last formal one stands for all that follow."""
    if not formal:
        return []
    return [formal[min(i, len(formal) - 1)].type_str for i in range(count)]


def _cast_inputs(node: ir.Node, own: list[int], to: ir.DataType) -> None:
    for i in own:
        value = node.inputs[i]
        if value is not None and value.dtype != to:
            cast = ir.node("Cast", [value], {"to": to})
            cast.outputs[0].dtype, cast.outputs[0].shape = to, value.shape
            _graph_of(node).insert_before(node, cast)
            node.replace_input_with(i, cast.outputs[0])


def _cast_outputs(node: ir.Node, own: list[int], wide: ir.DataType) -> None:
    for i in own:
        value = node.outputs[i]
        narrow = value.dtype
        if narrow is None or narrow == wide:
            continue
        uses = list(value.uses())
        value.dtype = wide
        cast = ir.node("Cast", [value], {"to": narrow})
        result = cast.outputs[0]
        result.dtype, result.shape = narrow, value.shape
        _graph_of(node).insert_after(node, cast)
        for user, index in uses:
            user.replace_input_with(index, result)
        outputs = _graph_of(node).outputs
        for index, output in enumerate(outputs):
            if output is value:
                result.name, value.name = value.name, f"{value.name}.wide"
                outputs[index] = result


def _graph_of(node: ir.Node) -> ir.Graph:
    graph = node.graph
    if not isinstance(graph, ir.Graph):
        raise AssertionError(f"'{node.name}' is in no graph")
    return graph
