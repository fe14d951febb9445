"""Attention: AITemplate's fused kernel where the mask is one that it has, else a softmax between two products.

fused    y = mem_eff_attention(q s sqrt(D), k, v)              no mask, or causal with queries and keys aligned
composed y = softmax(q s K' [+ mask]) V'                       keys padded to a fixed width W, hidden by -inf

The width of a softmax and the inner size of a product must be known when AITemplate compiles, and the number of keys
seldom is. So K^T, V^T and the mask are padded with zeros to a width above the bound of the keys. What tells a padded
key from a real one is a row of ones that is padded too: its logarithm is 0 for a key and -inf for padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.calls import CallWriter
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds, range_of
from ortisan.codegen.ait.ops.move import padded_width
from ortisan.codegen.ait.ops.reduce import row_reduce
from ortisan.codegen.ait.rules import Reason, floats, static
from ortisan.registry.dims import Dim, is_static, product, settle
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import Attention, Bmm, DynamicSlice, Expand, Pad, Softmax
from ortisan.registry.ops.attention import Causality
from ortisan.registry.refusal import Refused

_ALIGNED = 8
LOWEST = {
    DType.FLOAT16: -65504.0,
    DType.BFLOAT16: -3.3895313892515355e38,
    DType.FLOAT32: -3.4028234663852886e38,
}
"""The lowest finite number of each type."""


def _attention_rule(node: Node, bounds: Bounds) -> Reason:
    q, k, v = node.inputs[:3]
    if q.shape[1] != k.shape[1]:
        return "AITemplate's attention has no grouped heads"
    sizes = (q.shape[1], q.shape[3], v.shape[3])
    if reason := floats(node) or static(sizes, "the number and the size of heads"):
        return reason
    if any(size % 4 for size in sizes[1:]):
        return f"AITemplate's attention needs head sizes that are multiples of 4, not {sizes[1]} and {sizes[2]}"
    return None


def _compose_attention(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Attention)
    q, k, v = inputs[:3]
    causal = _causality(op, q.shape[2], k.shape[2])
    if op.mask == "none" and op.softcap == 0 and causal != "lower_right" and _fits_kernel(q, v):
        return [_fused(b, replace(op, causal=causal), q, k, v)]
    if causal != "none":
        raise Refused(
            "AITemplate can't compute the causal mask of queries behind a past of any length; "
            "give it to the op as attn_mask"
        )
    return [_composed(b, op, inputs)]


def _causality(op: Attention, queries: Dim, keys: Dim) -> Causality:
    """What is left of causality: one query behind all keys sees them all, and without a past both corners are one."""
    if op.causal == "lower_right" and queries == 1:
        return "none"
    if op.causal == "lower_right" and settle(queries - keys) == 0:
        return "upper_left"
    return "none" if op.causal == "upper_left" and keys == 1 else op.causal


def _fits_kernel(q: Value, v: Value) -> bool:
    return all(is_static(size) and size % 4 == 0 for size in (q.shape[3], v.shape[3]))


def _fused(b: Composer, op: Attention, q: Value, k: Value, v: Value) -> Value:
    size = q.shape[3]
    natural = 1 / math.sqrt(size)
    if not math.isclose(op.scale, natural, rel_tol=1e-6):
        q = b.elementwise("MUL", q, b.number(op.scale * math.sqrt(size), q.dtype))
    heads = q.shape[1]
    if k.shape[1] != heads:
        k, v = (_repeated(b, x, heads) for x in (k, v))
    b.note(f"attention: mem_eff_attention, {'causal' if op.causal == 'upper_left' else 'no mask'}")
    return b.add(Attention(natural, causal=op.causal), q, k, v)


def _repeated(b: Composer, x: Value, heads: Dim) -> Value:
    """Each head as often as makes `heads` of them."""
    few = x.shape[1]
    if not is_static(few) or not is_static(heads):
        raise Refused("AITemplate needs the number of heads known when it compiles")
    shape = (x.shape[0], few, heads // few, *x.shape[2:])
    wide = b.add(Expand(shape), b.reshape(x, (*x.shape[:2], 1, *x.shape[2:])))
    return b.reshape(wide, (x.shape[0], heads, *x.shape[2:]))


@dataclass(frozen=True)
class _Keys:
    """How many keys there are, and the width that they are padded to."""

    count: Dim
    width: int

    @property
    def padded(self) -> bool:
        return not is_static(self.count) or self.count != self.width


def _composed(b: Composer, op: Attention, inputs: tuple[Value, ...]) -> Value:
    """Queries of all heads that share a key head are rows of one product, so no head is repeated."""
    q, k, v = inputs[:3]
    mask = inputs[3] if op.mask != "none" else None
    batch, heads, queries, size = q.shape
    groups, count, wide = k.shape[1], k.shape[2], v.shape[3]
    if not all(is_static(n) for n in (heads, groups, size, wide)):
        raise Refused("AITemplate needs the number and the size of heads known when it compiles")
    keys = _Keys(count, count if is_static(count) and count % _ALIGNED == 0 else padded_width(b, count))
    if range_of(count, b.bounds)[0] == 0:
        raise Refused(f"AITemplate's softmax needs a key at least, and there may be none; bound {count} from below")
    shown = _shown(b, op, keys, mask, k)
    rows = settle(queries * (heads // groups))
    k_t, v_t = (_transposed(b, x, keys) for x in (k, v))
    scaled = b.elementwise("MUL", q, b.number(op.scale, q.dtype)) if op.scale != 1 else q
    logits = b.add(Bmm("rrr"), b.reshape(scaled, (product((batch, groups)), rows, size)), k_t)
    logits = b.reshape(logits, (batch, heads, queries, keys.width))
    if op.softcap:
        cap = b.number(op.softcap, q.dtype)
        logits = b.elementwise("MUL", b.elementwise("TANH", b.elementwise("DIV", logits, cap)), cap)
    if shown.factor is not None:
        logits = b.elementwise("MUL", logits, shown.factor)
    if shown.bias is not None:
        logits = b.elementwise("ADD", logits, shown.bias)
    if shown.rows is not None:
        # 0 where a row sees no key, so that its softmax is a number; -inf elsewhere.
        floor = b.elementwise("LOGE", b.elementwise("SUB", b.number(1.0, q.dtype), shown.rows))
        logits = b.elementwise("MAX", logits, floor)
    weights = b.add(Softmax(3), logits)
    y = b.add(Bmm("rcr"), b.reshape(weights, (product((batch, groups)), rows, keys.width)), v_t)
    y = b.reshape(y, (batch, heads, queries, wide))
    if shown.rows is not None:
        y = b.elementwise("MUL", y, shown.rows)
    how = f"keys padded to {keys.width}" if keys.padded else f"{keys.width} keys"
    b.note(f"attention: two products and a softmax, {how}, {op.mask} mask")
    return y


def _transposed(b: Composer, x: Value, keys: _Keys) -> Value:
    """[B,G,T,D] -> [B G,D,W]."""
    turned = _padded(b, b.permute(x, (0, 1, 3, 2)), keys)
    return b.reshape(turned, (product(x.shape[:2]), x.shape[3], keys.width))


def _padded(b: Composer, x: Value, keys: _Keys) -> Value:
    if not keys.padded:
        return x
    zeros = (0,) * len(x.shape)
    return b.add(Pad(zeros, (*zeros[1:], settle(keys.width - keys.count))), x)


@dataclass(frozen=True)
class _Shown:
    """What hides keys [.,.,.,W]: logits * factor + bias. `rows` [.,.,S,1] is 0 for rows that become 0, else 1."""

    bias: Value | None = None
    factor: Value | None = None
    rows: Value | None = None


def _shown(b: Composer, op: Attention, keys: _Keys, mask: Value | None, k: Value) -> _Shown:
    if mask is None:
        return _Shown(_padding(b, keys, _ones(b, _first_row(b, k)))) if keys.padded else _Shown()
    mask = _four_dims(b, mask, keys)
    zeroed = op.empty_rows_zero or op.nan_rows_zero
    if op.mask == "additive":
        bias = _padded(b, mask, keys)
        if keys.padded:
            bias = b.elementwise("ADD", bias, _padding(b, keys, _ones(b, mask)))
        return _Shown(bias, rows=_has_number(b, bias) if zeroed else None)
    keep = b.cast(mask, k.dtype)
    if op.hidden_logit == -math.inf:
        wide = _padded(b, keep, keys)
        return _Shown(b.elementwise("LOGE", wide), rows=row_reduce(b, "max", wide) if zeroed else None)
    one = b.number(1.0, k.dtype)
    hidden = b.number(max(op.hidden_logit, LOWEST[k.dtype]), k.dtype)
    bias = _padded(b, b.elementwise("MUL", b.elementwise("SUB", one, keep), hidden), keys)
    if keys.padded:
        bias = b.elementwise("ADD", bias, _padding(b, keys, _ones(b, keep)))
    return _Shown(bias, factor=_padded(b, keep, keys))


def _has_number(b: Composer, bias: Value) -> Value:
    """1 for rows that hold more than -inf, else 0."""
    top = row_reduce(b, "max", bias)
    return b.cast(b.elementwise("GE", top, b.number(LOWEST[bias.dtype], bias.dtype)), bias.dtype)


def _first_row(b: Composer, k: Value) -> Value:
    """[B,1,1,T]: something with as many elements as there are keys."""
    turned = b.permute(k, (0, 1, 3, 2))
    sizes = (k.shape[0], 1, 1, k.shape[2])
    return b.add(DynamicSlice((0,) * 4, sizes, (1,) * 4), turned)


def _padding(b: Composer, keys: _Keys, ones: Value) -> Value:
    """0 for a key and -inf for padding."""
    return b.elementwise("LOGE", _padded(b, ones, keys))


def _ones(b: Composer, x: Value) -> Value:
    """Ones in the shape of x, whatever is in it."""
    one = b.number(1.0, x.dtype)
    return b.elementwise("MIN", b.elementwise("MAX", x, one), one)


def _four_dims(b: Composer, mask: Value, keys: _Keys) -> Value:
    if mask.shape and mask.shape[-1] != keys.count:
        raise Refused(f"the last dim of the mask is {mask.shape[-1]}, not the number of keys, {keys.count}")
    return b.reshape(mask, (*(1,) * (4 - len(mask.shape)), *mask.shape))


def _call_attention(w: CallWriter, node: Node) -> None:
    assert isinstance(node.op, Attention)
    args = [w.read(value) for value in node.inputs]
    w.add_rows_first(node, "mem_eff_attention", args, {"causal": node.op.causal == "upper_left"})


OPS = (AitOp(Attention, rule=_attention_rule, compose=_compose_attention, call=_call_attention),)
