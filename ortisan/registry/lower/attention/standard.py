"""ONNX's own Attention, of opsets 23 to 25.

    logits = softcap(scale * q k^T) + mask, q[B,H,S,D], k[B,G,T,D], v[B,G,T,E] with H a multiple of G
    y      = softmax(logits) v, 0 in a row that sees no key

Query i is at position p = i + (keys before the queries): those of the past, or those of `nonpad_kv_seqlen` that are not
the queries' own. It sees key j, under `is_causal`, when j <= p, and under windows when p - left <= j <= p + right.
"""

from __future__ import annotations

import math

import ml_dtypes

from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, settle
from ortisan.registry.dtypes import DType
from ortisan.registry.entries import Result, Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.attention.heads import (
    both,
    dim_value,
    extend,
    head_size,
    key_positions,
    merge_heads,
    per_batch,
    query_positions,
    refuse_logits,
    require_equal,
    split_heads,
)
from ortisan.registry.ops import Attention, Pad
from ortisan.registry.ops.attention import Causality, MaskKind
from ortisan.registry.refusal import Refused

_ATTRIBUTES = (
    "is_causal",
    "kv_num_heads",
    "left_window_size",
    "q_num_heads",
    "qk_matmul_output_mode",
    "right_window_size",
    "scale",
    "softcap",
    "softmax_precision",
)


@lowers("Attention", since=23, attributes=_ATTRIBUTES)
def attention(site: Site) -> Result:
    b = site.builder
    refuse_logits(site)
    q, k, v = (_with_heads(site, index) for index in range(3))
    past_k, past_v, counts = site.optional(4), site.optional(5), site.optional(6)
    if (past_k is None) != (past_v is None):
        raise Refused("only one of past_key and past_value is given")
    if past_k is not None and counts is not None:
        raise Refused("past_key and nonpad_kv_seqlen exclude each other")
    keys, values = extend(b, past_k, k), extend(b, past_v, v)
    causal, seen = _seen_keys(site, q, k, keys.shape[2], counts)
    kind, mask = _mask(site, q, keys.shape[2], seen)
    op = Attention(
        float(site.attribute("scale", 1 / math.sqrt(head_size(q, "the query")))),
        kind,
        empty_rows_zero=mask is not None or causal != "none",
        causal=causal,
        softcap=float(site.attribute("softcap", 0.0)),
    )
    y = _attend(b, op, _working_type(site, q.dtype), [q, keys, values, *([mask] if mask is not None else [])])
    return (merge_heads(b, y) if len(site.need(0).shape) == 3 else y), keys, values


def _with_heads(site: Site, index: int) -> Value:
    """An operand as [B,H,S,D]."""
    x, name = site.need(index), "QKV"[index]
    if len(x.shape) == 4:
        return x
    heads = site.attributes.get("q_num_heads" if index == 0 else "kv_num_heads")
    if heads is None:
        raise Refused(f"{name} {x.type} needs the attributes q_num_heads and kv_num_heads")
    return split_heads(site.builder, x, heads, name)


def _seen_keys(site: Site, q: Value, k: Value, total: Dim, counts: Value | None) -> tuple[Causality, Value | None]:
    """The causality that the op supports itself, or a boolean mask for the rest."""
    b, queries, past = site.builder, q.shape[2], settle(total - k.shape[2])
    left, right = (int(site.attribute(f"{side}_window_size", -1)) for side in ("left", "right"))
    if site.attribute("is_causal", 0):
        if counts is None and left < 0:
            if settle(k.shape[2] - queries) == 0:
                return "lower_right", None
            if past == 0:
                return "upper_left", None
        right = 0
    first: Dim | Value = past
    if counts is not None:
        require_equal(b, counts.shape[0], q.shape[0], "the batch and the number of nonpad_kv_seqlen")
        first = b.elementwise("SUB", b.cast(counts, DType.INT64), dim_value(b, queries))
    places = key_positions(b, total)
    return "none", both(
        b,
        b.elementwise("GE", places, query_positions(b, queries, first, -left)) if left >= 0 else None,
        b.elementwise("LE", places, query_positions(b, queries, first, right)) if right >= 0 else None,
        # Up to the query itself, a key is among those that count.
        b.elementwise("LT", places, per_batch(b, counts)) if counts is not None and right != 0 else None,
    )


def _mask(site: Site, q: Value, keys: Dim, seen: Value | None) -> tuple[MaskKind, Value | None]:
    b, mask = site.builder, site.optional(3)
    if mask is None:
        return ("none", None) if seen is None else ("boolean", seen)
    if mask.dtype is DType.BOOL:
        return "boolean", both(b, _padded(site, mask, keys, b.number(False, DType.BOOL)), seen)
    hidden = b.number(-math.inf, q.dtype)
    # ONNX Runtime takes the lowest finite number, which exporters write, for -inf: a row of it sees no key.
    given = b.cast(mask, q.dtype)
    lowest = b.number(float(ml_dtypes.finfo(q.dtype.numpy).min), q.dtype)
    added = _padded(site, b.elementwise("WHERE", b.elementwise("LE", given, lowest), hidden, given), keys, hidden)
    return "additive", added if seen is None else b.elementwise("WHERE", seen, added, hidden)


def _padded(site: Site, mask: Value, keys: Dim, hidden: Value) -> Value:
    """Since opset 24 a mask may be shorter than the keys; those behind it are hidden."""
    if site.version < 24 or not mask.shape or settle(mask.shape[-1] - keys) == 0:
        return mask
    before = tuple(0 for _ in mask.shape)
    return site.builder.add(Pad(before, (*before[1:], settle(keys - mask.shape[-1]))), mask, hidden)


def _working_type(site: Site, dtype: DType) -> DType:
    """The type to compute in: softmax is never less precise than `softmax_precision` asks for."""
    asked = site.attributes.get("softmax_precision")
    precision = dtype if asked is None else DType.from_onnx(asked)
    if precision is None or not precision.is_float:
        raise Refused(f"a softmax_precision of ONNX element type {asked} is not supported")
    return precision if precision is DType.FLOAT64 else dtype


def _attend(b: Builder, op: Attention, dtype: DType, operands: list[Value]) -> Value:
    wide = [x if x.dtype is DType.BOOL else b.cast(x, dtype) for x in operands]
    return b.cast(b.add(op, *wide), operands[0].dtype)
