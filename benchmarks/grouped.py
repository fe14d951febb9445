"""Decoders with ONNX Runtime's own ops, as its model builder for generation writes them.

The optimizer of onnxruntime.transformers finds no attention in decoders with a key and a value per layer. Their
fastest form in ONNX Runtime is GroupQueryAttention: it takes the projections as they come out of the products, turns
them, keeps the cache and attends. It reads the number of keys of each row off the mask, so padding has to be on the
right.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

_DOMAIN = "com.microsoft"
_EPSILON = 1e-6
_PLACES = 1024
_THETA = 10000.0


def group_attention(model: ir.Model, heads: int) -> None:
    """Rewrites a model of `ortisan.models.gpt2` or `llama`, whose nodes are found by their names."""
    graph = model.graph
    nodes = {node.name or "": node for node in graph}
    lengths = _lengths(graph)
    outputs = {value.name: index for index, value in enumerate(graph.outputs)}
    for index in range(sum(name.endswith(".key") for name in outputs if name)):
        turned = f"/model.layers.{index}.self_attn/Softmax" in nodes
        at = f"model.layers.{index}.self_attn" if turned else f"transformer.h.{index}.attn"
        new = [nodes[f"/{at}/Reshape{part}"].inputs[0] for part in ("", "_1", "_2")]
        cache = [f"{index}.key", f"{index}.value"]
        past = [next(value for value in graph.inputs if value.name == f"past_key_values.{part}") for part in cache]
        tables = _rotary_tables(graph, past[0].shape[3]) if turned else []
        attend = ir.node(
            "GroupQueryAttention",
            [*new, *past, *lengths, *tables],
            {"num_heads": heads, "kv_num_heads": past[0].shape[1], "do_rotary": int(turned)},
            domain=_DOMAIN,
            num_outputs=3,
            name=f"/{at}/GroupQueryAttention",
        )
        graph.insert_after(nodes[f"/{at}/Softmax"], attend)
        context = list(_numbered(nodes, f"/{at}/Reshape"))[-1].outputs[0]
        context.replace_all_uses_with(attend.outputs[0])
        for value, part in zip(attend.outputs[1:], cache, strict=True):
            old = graph.outputs[outputs[f"present.{part}"]]
            value.name, value.type, value.shape = old.name, old.type, old.shape
            old.name = f"replaced.{part}"
            graph.outputs[outputs[f"present.{part}"]] = value
    _simplify_norms(graph, nodes)
    graph.sort()
    graph.opset_imports[_DOMAIN] = 1
    RemoveUnusedNodesPass()(model)


def _numbered(nodes: dict[str, ir.Node], name: str) -> Iterator[ir.Node]:
    """The nodes called NAME, NAME_1, NAME_2, ..."""
    index = 0
    while (node := nodes.get(f"{name}_{index}" if index else name)) is not None:
        yield node
        index += 1


def _lengths(graph: ir.Graph) -> list[ir.Value]:
    """The last key of each row and the length of the longest, as int32."""
    (mask,) = (value for value in graph.inputs if value.name == "attention_mask")
    axis, one = _constant(graph, "lengths.axis", np.array([1])), _constant(graph, "lengths.one", np.array(1))
    kind = {"to": ir.DataType.INT32.value}
    sums = ir.node("ReduceSum", [mask, axis], {"keepdims": 0})
    last = ir.node("Sub", [sums.outputs[0], one])
    rows = ir.node("Cast", [last.outputs[0]], kind)
    shape = ir.node("Shape", [mask], {"start": 1, "end": 2})
    total = ir.node("Squeeze", [shape.outputs[0]])
    longest = ir.node("Cast", [total.outputs[0]], kind)
    made = [sums, last, rows, shape, total, longest]
    graph.insert_before(graph[0], made)
    return [rows.outputs[0], longest.outputs[0]]


def _rotary_tables(graph: ir.Graph, width: int) -> list[ir.Value]:
    frequencies = 1 / _THETA ** (np.arange(0, width, 2, dtype=np.float32) / width)
    angles = np.arange(_PLACES, dtype=np.float32)[:, None] * frequencies.astype(np.float32)
    return [_constant(graph, f"rotary.{name}", of(angles)) for name, of in (("cos", np.cos), ("sin", np.sin))]


def _simplify_norms(graph: ir.Graph, nodes: dict[str, ir.Node]) -> None:
    """RMS norms that are written out become one node; ONNX Runtime joins it with the sum before it by itself."""
    for name, square in nodes.items():
        at, _, op = name.rpartition("/")
        if op != "Pow" or f"{at}/Reciprocal" not in nodes:
            continue
        weight, scaled = nodes[f"{at}/Mul_1"].inputs[0], nodes[f"{at}/Mul_1"]
        attributes = {"axis": -1, "epsilon": _EPSILON, "stash_type": 1}
        norm = ir.node("SimplifiedLayerNormalization", [square.inputs[0], weight], attributes, name=f"{at}/Norm")
        graph.insert_after(scaled, norm)
        scaled.outputs[0].replace_all_uses_with(norm.outputs[0])


def _constant(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    if name not in graph.initializers:
        tensor = ir.tensor(np.asarray(array), name=name)
        kind = ir.TensorType(tensor.dtype)
        graph.register_initializer(ir.Value(name=name, const_value=tensor, type=kind, shape=tensor.shape))
    return graph.initializers[name]
