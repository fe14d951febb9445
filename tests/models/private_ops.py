"""What the ops of the private domain mean, in numpy, and a check that fused nodes mean what they replaced."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ortisan.converter.fuse import PRIVATE_DOMAIN, expand_private
from ortisan.converter.passes.canonical import Canonical, canonicalize
from ortisan.converter.passes.origin import origins
from ortisan.converter.read.load import load_model
from tests.models.text import Array, random_feeds, run_ort
from tests.tolerances import BLOCK, SAME

_erf = np.vectorize(math.erf, otypes=[np.float64])


def layer_normalization(x: Array, scale: Array, bias: Array | None = None, *, axis: int, epsilon: float) -> Array:
    axes = tuple(range(axis, 0))
    d = x - x.mean(axes, keepdims=True)
    y = d / np.sqrt((d * d).mean(axes, keepdims=True) + epsilon) * scale
    return y if bias is None else y + bias


def gelu(x: Array, *, approximate: str) -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def rms_normalization(x: Array, scale: Array, *, axis: int, epsilon: float) -> Array:
    return x / np.sqrt((x * x).mean(tuple(range(axis, 0)), keepdims=True) + epsilon) * scale


def rotary_embedding(x: Array, cos: Array, sin: Array, *, size: int, interleaved: int) -> Array:
    assert not interleaved
    turned, half = x[..., :size], size // 2
    swapped = np.concatenate([-turned[..., half:], turned[..., :half]], axis=-1)
    return np.concatenate([turned * cos + swapped * sin, x[..., size:]], axis=-1)


def attention(
    q: Array,
    k: Array,
    v: Array,
    m: Array | None = None,
    *,
    scale: float,
    cap: float,
    mask: str,
    hidden: float,
    guarded: int,
) -> Array:
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    logits = scale * q @ k.swapaxes(-1, -2)
    if cap:
        logits = cap * np.tanh(logits / cap)
    if mask == "additive":
        logits = logits + m
    elif mask == "boolean":
        logits = np.where(m, logits, hidden)
    with np.errstate(invalid="ignore"):
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights = weights / weights.sum(-1, keepdims=True)
    return (np.where(np.isnan(weights), 0.0, weights) if guarded else weights) @ v


_REFERENCE: Mapping[str, Callable[..., Array]] = {
    "LayerNormalization": layer_normalization,
    "Gelu": gelu,
    "Attention": attention,
    "RMSNormalization": rms_normalization,
    "RotaryEmbedding": rotary_embedding,
}


def private_nodes(model: ir.Model, op_type: str) -> list[ir.Node]:
    return [node for node in model.graph.all_nodes() if (node.domain, node.op_type) == (PRIVATE_DOMAIN, op_type)]


def one_fused_node(
    proto: onnx.ModelProto, op_type: str, others: tuple[str, ...], attributes: Mapping[str, Any]
) -> tuple[Canonical, ir.Node]:
    """The canonical model and its one fused node, which has these attributes and stands beside `others`."""
    canonical = canonicalize(load_model(proto))
    (node,) = private_nodes(canonical.model, op_type)
    assert canonical.counts[f"fuse {op_type}"] == 1
    assert {name: node.attributes[name].value for name in attributes} == attributes
    assert sorted(other.op_type for other in canonical.model.graph if other is not node) == sorted(others)
    return canonical, node


def fused_once(
    proto: onnx.ModelProto,
    op_type: str,
    *,
    others: tuple[str, ...] = (),
    meaning: Callable[..., Array] | None = None,
    **attributes: Any,
) -> Canonical:
    """One fused node with these attributes, beside `others`; it means in numpy what the model means in ORT."""
    canonical, node = one_fused_node(proto, op_type, others, attributes)
    assert len(origins(node)) + len(others) == len(proto.graph.node)
    feeds = random_feeds(proto, B=2, S=3)
    outputs = check_private_ops(canonical, feeds, meanings={op_type: meaning} if meaning else {})
    np.testing.assert_allclose(outputs[0], run_ort(proto, feeds)[0], rtol=0, atol=SAME)
    return canonical


def not_fused(proto: onnx.ModelProto, reason: str, op_type: str) -> None:
    """No fused node, and a near miss with this reason."""
    canonical = canonicalize(load_model(proto))
    assert not private_nodes(canonical.model, op_type)
    reasons = [miss.reason for miss in canonical.near_misses if miss.pattern == f"fuse {op_type}"]
    assert any(reason in given for given in reasons), reasons


def check_private_ops(
    canonical: Canonical,
    feeds: Mapping[str, Array],
    *,
    tolerance: float = BLOCK,
    meanings: Mapping[str, Callable[..., Array]] | None = None,
) -> list[Array]:
    """Runs the model with all fused nodes expanded, and compares each of them with its numpy meaning.

    `meanings` are those of ops that have none here. Returns the outputs of the model, which is expanded by this.
    """
    model = canonical.model
    count = len(model.graph.outputs)
    fused = [node for node in model.graph if node.domain == PRIVATE_DOMAIN]
    calls = [
        (node.op_type, list(node.inputs), node.outputs[0].name, {k: a.value for k, a in node.attributes.items()})
        for node in fused
    ]
    wanted = {value.name: value for _, inputs, _, _ in calls for value in inputs if value is not None}
    wanted |= {node.outputs[0].name: node.outputs[0] for node in fused}
    known = dict(feeds)
    expand_private(model)
    by_name = {value.name: value for node in model.graph for value in node.outputs}
    extra = [name for name in wanted if name in by_name and not by_name[name].is_graph_output()]
    model.graph.outputs.extend(by_name[name] for name in extra)
    for name, value in model.graph.initializers.items():
        known[name] = value.const_value.numpy()
    results = run_ort(ir.to_proto(model), feeds)
    known |= {value.name: result for value, result in zip(model.graph.outputs, results, strict=True)}
    for op_type, inputs, output, attributes in calls:
        arguments = [
            known[value.name].astype(np.float64 if value.dtype.is_floating_point() else bool) for value in inputs
        ]
        expected = {**_REFERENCE, **(meanings or {})}[op_type](*arguments, **attributes)
        np.testing.assert_allclose(known[output], expected, rtol=tolerance, atol=tolerance)
    return results[:count]
