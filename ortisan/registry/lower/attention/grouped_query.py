"""GroupQueryAttention of com.microsoft, in the meaning of ONNX Runtime's CPU kernel.

The keys of each sequence stand at the front of its row of the cache, n = seqlens_k + 1 of them, the last S of which are
new (all of them in a first prompt, whose tail may be padding). The new ones are written behind the past ones:

    start   = max(0, n - S)
    present = past with rotary(k) written at start, max(P, total_sequence_length) long
    query i sees key j when j <= start + i and j < n, and under a window when j > start + i - window

What lies behind the keys of a sequence in the present has no meaning. A past and a present of one length may share
their memory.
"""

from __future__ import annotations

import math

from ortisan.registry.builder import Builder, known_dims
from ortisan.registry.dims import Dim, maximum, settle
from ortisan.registry.dtypes import DType
from ortisan.registry.entries import CONTRIB_DOMAIN, Result, Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.attention.heads import (
    both,
    dim_value,
    head_size,
    key_positions,
    merge_heads,
    per_batch,
    query_positions,
    refuse_logits,
    require_equal,
    split_heads,
)
from ortisan.registry.lower.rotary import rotate
from ortisan.registry.ops import Arange, Attention, CacheWrite, DynamicSlice, Split
from ortisan.registry.refusal import Refused

_UNSUPPORTED_INPUTS = {
    11: "head_sink is not supported",
    12: "a quantized cache is not supported",
    13: "a quantized cache is not supported",
    14: "q_norm_weight is not supported; normalize the queries before this op",
    15: "k_norm_weight is not supported; normalize the keys before this op",
}
_UNSUPPORTED_ATTRIBUTES = {
    "k_quant_type": "NONE",
    "kv_cache_bit_width": 0,
    "qk_output": 0,
    "sliding_window_cache": 0,
    "smooth_softmax": 0,
    "v_quant_type": "NONE",
}
_ATTRIBUTES = (
    "causal",
    "do_rotary",
    "kv_num_heads",
    "local_window_size",
    "num_heads",
    "qk_norm_epsilon",
    "rotary_interleaved",
    "scale",
    "softcap",
)


@lowers("GroupQueryAttention", attributes=(*_ATTRIBUTES, *_UNSUPPORTED_ATTRIBUTES), domain=CONTRIB_DOMAIN)
def group_query_attention(site: Site) -> Result:
    b = site.builder
    _refuse_what_is_not_written_here(site)
    q, k, v = _separate(site)
    past_k, past_v = site.optional(3), site.optional(4)
    if (past_k is None) != (past_v is None):
        raise Refused("only one of past_key and past_value is given")
    (total,) = known_dims(site.need(6), "total_sequence_length")
    counts = _key_counts(b, site.need(5), q.shape[0])
    start = _starts(b, counts, q.shape[2])
    if site.attribute("do_rotary", 0):
        positions = _positions(site, start, q.shape[2], total)
        tables, interleaved = (site.need(7), site.need(8)), bool(site.attribute("rotary_interleaved", 0))
        q, k = (rotate(b, x, tables, positions, interleaved) for x in (q, k))
    present_k, present_v = (_present(b, past, new, start, total) for past, new in ((past_k, k), (past_v, v)))
    keys, values = (_first_keys(b, present, total) for present in (present_k, present_v))
    y = _attend(site, q, keys, values, _seen_keys(site, q.shape[2], total, start, counts))
    return merge_heads(b, y), present_k, present_v


def _refuse_what_is_not_written_here(site: Site) -> None:
    refuse_logits(site)
    for index, reason in _UNSUPPORTED_INPUTS.items():
        if site.optional(index) is not None:
            raise Refused(reason)
    for name, default in _UNSUPPORTED_ATTRIBUTES.items():
        value = site.attribute(name, default)
        if value != default:
            raise Refused(f"{name}={value} is not supported")


def _separate(site: Site) -> tuple[Value, Value, Value]:
    """q[B,H,S,D], k[B,G,S,D], v[B,G,S,D]."""
    b, query, key, value = site.builder, site.need(0), site.optional(1), site.optional(2)
    heads, groups = site.attribute("num_heads", 0), site.attribute("kv_num_heads", 0)
    if heads <= 0 or groups <= 0 or heads % groups:
        raise Refused(f"{heads} query heads are not a multiple of {groups} key heads")
    if key is None or value is None:
        if key is not None or value is not None:
            raise Refused("only one of key and value is given")
        whole = head_size(query, "the packed query")
        if whole % (heads + 2 * groups):
            raise Refused(f"the packed query {query.type} does not divide into {heads} + 2 * {groups} heads")
        size = whole // (heads + 2 * groups)
        query, key, value = b.add_many(Split(2, (heads * size, groups * size, groups * size)), query)
    else:
        require_equal(b, key.shape[1], query.shape[1], "the lengths of query and key")
    q = split_heads(b, query, heads, "query")
    return q, split_heads(b, key, groups, "key"), split_heads(b, value, groups, "value")


def _key_counts(b: Builder, last_keys: Value, batch: Dim) -> Value:
    """seqlens_k + 1 as int64 [B]; older models give it more dims of 1."""
    flat = b.cast(b.reshape(last_keys, (batch,)), DType.INT64)
    return b.elementwise("ADD", flat, b.number(1, DType.INT64))


def _starts(b: Builder, counts: Value, queries: Dim) -> Value:
    before = b.elementwise("SUB", counts, dim_value(b, queries))
    return b.elementwise("MAX", before, b.number(0, DType.INT64))


def _positions(site: Site, start: Value, queries: Dim, total: Dim) -> Value:
    """[B,S]. Of given position_ids, a first prompt (as long as the total) reads only the very first."""
    b, given = site.builder, site.optional(9)
    steps = b.reshape(b.add(Arange(0, 1, queries, DType.INT64)), (1, queries))
    if given is None:
        return b.elementwise("ADD", steps, b.reshape(start, (*start.shape, 1)))
    own = b.cast(given, DType.INT64)
    first = b.elementwise("ADD", steps, b.add(DynamicSlice((0, 0), (1, 1), (1, 1)), own))
    prompt = b.elementwise("EQ", dim_value(b, queries), dim_value(b, total))
    return b.elementwise("WHERE", prompt, first, own)


def _present(b: Builder, past: Value | None, new: Value, start: Value, total: Dim) -> Value:
    if past is None:
        require_equal(b, total, new.shape[2], "total_sequence_length and the length of the new keys, without a past")
        return new
    return b.add(CacheWrite(2, length=maximum(past.shape[2], total)), past, new, start)


def _first_keys(b: Builder, present: Value, total: Dim) -> Value:
    if settle(present.shape[2] - total) == 0:
        return present
    batch, heads, _, size = present.shape
    return b.add(DynamicSlice((0, 0, 0, 0), (batch, heads, total, size), (1, 1, 1, 1)), present)


def _seen_keys(site: Site, queries: Dim, total: Dim, start: Value, counts: Value) -> Value:
    b, window = site.builder, site.attribute("local_window_size", -1)
    places = key_positions(b, total)
    valid = b.elementwise("LT", places, per_batch(b, counts))
    if not site.attribute("causal", 1):
        return valid
    if window == 0:
        raise Refused("a local_window_size of 0 hides every key")
    seen = both(
        b,
        b.elementwise("LE", places, query_positions(b, queries, start)),
        b.elementwise("GT", places, query_positions(b, queries, start, -window)) if window > 0 else None,
        valid,
    )
    return seen or valid


def _attend(site: Site, q: Value, keys: Value, values: Value, seen: Value) -> Value:
    b, bias = site.builder, site.optional(10)
    scale = site.attribute("scale", 0.0) or 1 / math.sqrt(head_size(q, "the query"))
    softcap = float(site.attribute("softcap", 0.0))
    if bias is None:
        # Only a query that is padding can see no key.
        return b.add(Attention(scale, "boolean", empty_rows_zero=True, softcap=softcap), q, keys, values, seen)
    added = b.elementwise("WHERE", seen, bias, b.number(-math.inf, q.dtype))
    return b.add(Attention(scale, "additive", softcap=softcap), q, keys, values, added)
