"""Attention and MultiHeadAttention of com.microsoft, in the meaning of ONNX Runtime's CPU kernels.

    logits = scale * q k^T + mask + attention_bias
    output = softmax(logits) v -> [B,S,H*E]

The mask adds mask_filter_value (-10000) where a key is hidden. It is finite, so a row that sees nothing is not empty:
its weights are about those without a mask. The converter turns an Attention without a past into standard ops before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, settle
from ortisan.registry.entries import CONTRIB_DOMAIN, Result, Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.attention.heads import (
    both,
    extend,
    head_size,
    key_positions,
    merge_heads,
    per_batch,
    refuse_logits,
    require_equal,
    split_heads,
)
from ortisan.registry.lower.products.matmul import product
from ortisan.registry.ops import Attention, Concatenate, DynamicSlice, Split
from ortisan.registry.refusal import Refused

_FILTER = -10000.0
_MASKING = ("mask_filter_value", "num_heads", "scale", "unidirectional")


@dataclass(frozen=True)
class _Operands:
    """q[B,H,S,D], and all keys and values, [B,H,T,D] and [B,H,T,E]; `new` of the T keys are not the past's."""

    q: Value
    keys: Value
    values: Value
    new: Dim


@lowers("MultiHeadAttention", attributes=_MASKING, domain=CONTRIB_DOMAIN)
def multi_head_attention(site: Site) -> Result:
    b = site.builder
    refuse_logits(site)
    if site.optional(8) is not None or site.optional(9) is not None:
        raise Refused("a past in a buffer shared with the present is not supported; use separate ones")
    q, k, v = _separate(site)
    past_k, past_v = site.optional(6), site.optional(7)
    if (past_k is None) != (past_v is None):
        raise Refused("only one of past_key and past_value is given")
    keys, values = extend(b, past_k, k), extend(b, past_v, v)
    y = _attend(site, _Operands(q, keys, values, k.shape[2]), mask=site.optional(4), bias=site.optional(5))
    return merge_heads(b, y), keys, values


def _separate(site: Site) -> tuple[Value, Value, Value]:
    """q, k, v as [B,H,S,D] with the bias added, from any of the packed and unpacked forms."""
    b, heads = site.builder, site.attribute("num_heads", 0)
    query, key, value, bias = site.need(0), site.optional(1), site.optional(2), site.optional(3)
    if len(query.shape) == 5:
        query, key, value = _unpacked(b, query, 3)
    elif key is not None and len(key.shape) == 5:
        key, value = _unpacked(b, key, 2)
    if key is None or value is None:
        raise Refused("key and value are missing, and query is not packed with them as [B,S,H,3,D]")
    parts = [query, key, value]
    if bias is not None:
        parts = _biased(b, parts, bias)
    # Keys and values with 4 dims are those of a cross attention, with their heads split already.
    q, k, v = (
        part if len(part.shape) == 4 else split_heads(b, part, heads, name)
        for part, name in zip(parts, ("query", "key", "value"), strict=True)
    )
    return q, k, v


def _unpacked(b: Builder, packed: Value, count: int) -> tuple[Value, ...]:
    """[B,S,H,count,D] -> count times [B,S,H*D]."""
    batch, length, heads, parts, size = packed.shape
    if parts != count:
        raise Refused(f"{packed.type} is not packed as [B,S,H,{count},D]")
    pieces = b.add_many(Split(3, (1,) * count), packed)
    return tuple(b.reshape(piece, (batch, length, settle(heads * size))) for piece in pieces)


def _biased(b: Builder, parts: list[Value], bias: Value) -> list[Value]:
    """Adds the parts of a bias for q, k and v; those of keys and values that have 4 dims are not added."""
    hidden = parts[0].shape[2]
    sizes = (hidden, hidden, settle(bias.shape[0] - 2 * hidden))
    pieces = b.add_many(Split(0, sizes), bias)
    return [
        b.elementwise("ADD", part, piece) if len(part.shape) == 3 else part
        for part, piece in zip(parts, pieces, strict=True)
    ]


_ATTENTION = (*_MASKING, "do_rotary", "past_present_share_buffer", "qkv_hidden_sizes", "rotary_embedding_dim")


@lowers("Attention", attributes=_ATTENTION, domain=CONTRIB_DOMAIN)
def attention(site: Site) -> Result:
    b, past = site.builder, site.optional(4)
    if site.optional(6) is not None or site.attribute("past_present_share_buffer", 0):
        raise Refused("a past in a buffer shared with the present is not supported; use separate ones")
    if site.attribute("do_rotary", 0):
        raise Refused("do_rotary is not supported; use MultiHeadAttention after RotaryEmbedding")
    q, k, v = _projected(site)
    if past is None and not any(site.used[1:]):
        keys, values, present = k, v, []
    else:
        present = [_present(b, past, k, v)]
        keys, values = (_half(b, present[0], index) for index in range(2))
    y = _attend(site, _Operands(q, keys, values, k.shape[2]), mask=site.optional(3), bias=site.optional(5))
    return merge_heads(b, y), *present


def _projected(site: Site) -> tuple[Value, Value, Value]:
    """q, k, v as [B,H,S,D]: parts of x @ weights + bias."""
    b, x, weights, bias = site.builder, site.need(0), site.need(1), site.optional(2)
    columns, heads = weights.shape[1], site.attribute("num_heads", 0)
    sizes = tuple(site.attribute("qkv_hidden_sizes", [columns // 3] * 3))
    if len(sizes) != 3 or sum(sizes) != columns:
        raise Refused(f"its hidden sizes {list(sizes)} don't fit its weights {weights.type}")
    y = product(b, x, weights)
    if bias is not None:
        y = b.elementwise("ADD", y, bias)
    parts = b.add_many(Split(2, sizes), y)
    q, k, v = (split_heads(b, part, heads, name) for part, name in zip(parts, "qkv", strict=True))
    return q, k, v


def _present(b: Builder, past: Value | None, k: Value, v: Value) -> Value:
    """Joins past and new into [2,B,H,T,D], keys then values. Attention reads from there, so the past is copied once."""
    new = b.add(Concatenate(0), *(b.reshape(part, (1, *part.shape)) for part in (k, v)))
    return new if past is None else b.add(Concatenate(3), past, new)


def _half(b: Builder, present: Value, index: int) -> Value:
    shape = present.shape[1:]
    starts, steps = (index, *(0 for _ in shape)), tuple(1 for _ in present.shape)
    return b.reshape(b.add(DynamicSlice(starts, (1, *shape), steps), present), shape)


def _attend(site: Site, x: _Operands, *, mask: Value | None, bias: Value | None) -> Value:
    b, queries, keys = site.builder, x.q.shape[2], x.keys.shape[2]
    scale = site.attribute("scale", 0.0) or 1 / math.sqrt(head_size(x.q, "the query"))
    added = bias
    if mask is not None:
        seen = seen_keys(b, mask, x.q.shape[0], keys)
        filter_value = site.attribute("mask_filter_value", _FILTER)
        hidden = b.elementwise("WHERE", seen, b.number(0.0, x.q.dtype), b.number(filter_value, x.q.dtype))
        added = hidden if bias is None else b.elementwise("ADD", hidden, bias)
    causal = bool(site.attribute("unidirectional", 0))
    if causal:
        # For other lengths the kernel of ONNX Runtime hides no key of the last query.
        require_equal(b, x.new, queries, "the lengths of queries and new keys of a unidirectional attention")
    op = Attention(scale, "none" if added is None else "additive", causal="lower_right" if causal else "none")
    return b.add(op, x.q, x.keys, x.values, *(() if added is None else (added,)))


def seen_keys(b: Builder, mask: Value, batch: Dim, keys: Dim) -> Value:
    """A key padding mask, in any of its forms, as booleans that broadcast to [B,1,S,T]."""
    rank = len(mask.shape)
    if rank == 1:
        return _seen_by_length(b, mask, batch, keys)
    if rank not in (2, 3):
        raise Refused(f"a mask {mask.type} of {rank} dims is not supported, nor is it by ONNX Runtime's kernel")
    seen = b.elementwise("GT", mask, b.number(0, mask.dtype))
    return b.reshape(seen, (mask.shape[0], 1, *(1 for _ in range(3 - rank)), *mask.shape[1:]))


def _seen_by_length(b: Builder, mask: Value, batch: Dim, keys: Dim) -> Value:
    """[B] ends, [2B] ends and starts, or [3B+2] lengths and more, of which only the first B count."""
    forms = {settle(count): count for count in (batch, 2 * batch, 3 * batch + 2)}
    count = forms.get(mask.shape[0])
    if count is None:
        raise Refused(f"a mask {mask.type} is not known to hold one length per batch element ({batch})")
    positions = key_positions(b, keys)
    ends = b.elementwise("LT", positions, per_batch(b, _piece(b, mask, 0, batch)))
    if count != 2 * batch:
        return ends
    starts = b.elementwise("GE", positions, per_batch(b, _piece(b, mask, batch, batch)))
    return both(b, ends, starts) or ends


def _piece(b: Builder, mask: Value, start: Dim, size: Dim) -> Value:
    return mask if mask.shape[0] == size else b.add(DynamicSlice((start,), (size,), (1,)), mask)
