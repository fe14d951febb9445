"""Turns contrib ops (com.microsoft) of ORT-optimized models back into the standard ops of the model's own opset.

Only ops that standard ops can express; the others are compiled directly, see registry/lower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import onnx_ir as ir

from ortisan.converter.passes.near_miss import NearMiss
from ortisan.converter.passes.origin import set_origins
from ortisan.converter.unfuse.attention import unfuse_attention
from ortisan.converter.unfuse.build import Refusal, StandardOps
from ortisan.converter.unfuse.simple import (
    Outputs,
    unfuse_bias_gelu,
    unfuse_embed_layer_norm,
    unfuse_fast_gelu,
    unfuse_fused_gemm,
    unfuse_fused_matmul,
    unfuse_gelu,
    unfuse_skip_layer_norm,
)
from ortisan.registry.surprise import Surprise, surprises

__all__ = ["unfuse_contrib_ops"]

CONTRIB_DOMAIN = "com.microsoft"
_DEFAULT_OPSET = 17

_UNFUSE: Mapping[str, Callable[[ir.Node, StandardOps], Outputs]] = {
    "Attention": unfuse_attention,
    "BiasGelu": unfuse_bias_gelu,
    "EmbedLayerNormalization": unfuse_embed_layer_norm,
    "FastGelu": unfuse_fast_gelu,
    "FusedGemm": unfuse_fused_gemm,
    "FusedMatMul": unfuse_fused_matmul,
    "Gelu": unfuse_gelu,
    "SkipLayerNormalization": unfuse_skip_layer_norm,
}


# If these are not unfused, they are compiled directly, or refused there with a reason.
_LOWERED_AS_THEY_ARE = frozenset({"Attention"})


def unfuse_contrib_ops(model: ir.Model, frozen: Callable[[ir.Node], bool]) -> tuple[dict[str, int], list[NearMiss]]:
    """Replaces contrib nodes in place. Returns how many of each op, and why the rest stayed."""
    counts: Counter[str] = Counter()
    refusals: list[NearMiss] = []
    for graph in model.graphs():
        for node in list(graph):
            if node.domain != CONTRIB_DOMAIN or node.op_type not in _UNFUSE:
                continue
            name = f"unfuse {node.op_type}"
            try:
                if frozen(node):
                    raise Refusal("excluded")
                _replace(node, graph, model)
                counts[name] += 1
            except Refusal as refusal:
                if node.op_type in _LOWERED_AS_THEY_ARE and not frozen(node):
                    continue
                refusals.append(NearMiss(name, node.name or "", str(refusal)))
    if not any(node.domain == CONTRIB_DOMAIN for node in model.graph.all_nodes()):
        model.opset_imports.pop(CONTRIB_DOMAIN, None)
    return dict(sorted(counts.items())), refusals


def _replace(node: ir.Node, graph: ir.Graph, model: ir.Model) -> None:
    opset = model.opset_imports.setdefault("", _DEFAULT_OPSET)
    known = set(graph.initializers)
    ops = StandardOps(node, graph, opset)
    try:
        with surprises(Refusal):
            results = _UNFUSE[node.op_type](node, ops)
    except (Refusal, Surprise) as reason:
        for abandoned in ops.nodes:
            for index in range(len(abandoned.inputs)):
                abandoned.replace_input_with(index, None)
        for name in set(graph.initializers) - known:
            del graph.initializers[name]
        raise Refusal(str(reason)) from reason
    for number, new_node in enumerate(ops.nodes):
        set_origins(new_node, [node])
        new_node.name = f"{node.name}_{new_node.op_type}_{number}"
        for value in new_node.outputs:
            value.name = f"{new_node.name}_out"
    pairs = [(old, new) for old, new in zip(node.outputs, results, strict=False) if new is not None]
    ir.convenience.replace_nodes_and_values(
        graph, node, [node], ops.nodes, [old for old, _ in pairs], [new for _, new in pairs]
    )
