"""Attention: a kernel of ours, which has every mask, or AITemplate's for heads that are too large for its tiles.

ours     y = attention(q, k, v [, mask]), all read through strides (templates/cuda/attention, read_in_place.py)
theirs   y = mem_eff_attention(q s sqrt(D), k, v)      heads above 256, no mask or causal with queries and keys aligned
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.calls import CallWriter
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.own import OwnKernel, calling
from ortisan.codegen.ait.rules import FLOATS, Reason, floats, static
from ortisan.codegen.ait.strided_attention import Strided, StridedAttention
from ortisan.codegen.expressions import contiguous_strides
from ortisan.registry.dims import Dim, Shape, is_static, settle
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import Attention, Expand
from ortisan.registry.ops.attention import Causality
from ortisan.registry.refusal import Refused

_LARGEST_IN_TILES = 256
"""`flash_largest_head` of flash_tiles.cuh."""
_LARGEST = 1024
"""What the kernel for few queries has in registers and shared memory."""
_ELEMENTS = {DType.FLOAT32: "float", DType.FLOAT16: "__half", DType.BFLOAT16: "__nv_bfloat16"}


def _attention_rule(node: Node, bounds: Bounds) -> Reason:
    """AITemplate's kernel, where it is right and ours would go over the keys once for each query."""
    q, k, v = node.inputs[:3]
    op = node.op
    assert isinstance(op, Attention)
    sizes = (q.shape[1], q.shape[3], v.shape[3])
    if reason := floats(node) or static(sizes, "the number and the size of heads"):
        return reason
    if max(sizes[1:]) <= _LARGEST_IN_TILES:
        return f"heads of up to {_LARGEST_IN_TILES} have a kernel of ours"
    if op.mask != "none" or op.softcap or op.causal == "lower_right" or q.shape[1] != k.shape[1]:
        return "AITemplate's attention has neither masks nor softcaps nor grouped heads, and no past when it is causal"
    if any(size % 4 for size in sizes[1:]):
        return f"AITemplate's attention needs head sizes that are multiples of 4, not {sizes[1]} and {sizes[2]}"
    return None


def _compose_attention(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Attention)
    q, k, v = inputs[:3]
    if not all(is_static(size) for size in (q.shape[1], k.shape[1], q.shape[3], v.shape[3])):
        raise Refused("kernels of attention need the number and the size of heads known when they are compiled")
    op = replace(op, causal=_causality(op, q.shape[2], k.shape[2]))
    if _is_theirs(op, q, v):
        return [_fused(b, op, q, k, v)]
    rules = [f"{op.mask} mask"] if op.mask != "none" or op.causal == "none" else []
    rules += ["causal"] if op.causal != "none" else []
    b.note(f"attention: own kernel, {', '.join(rules).replace('none mask', 'no mask')}")
    return [b.add(op, *inputs)]


def _causality(op: Attention, queries: Dim, keys: Dim) -> Causality:
    """What is left of causality: one query behind all keys sees them all, and without a past both corners are one."""
    if op.causal == "lower_right" and queries == 1:
        return "none"
    if op.causal == "lower_right" and settle(queries - keys) == 0:
        return "upper_left"
    return "none" if op.causal == "upper_left" and keys == 1 else op.causal


def _is_theirs(op: Attention, q: Value, v: Value) -> bool:
    sizes = (q.shape[3], v.shape[3])
    plain = op.mask == "none" and op.softcap == 0 and op.causal != "lower_right"
    return plain and max(sizes) > _LARGEST_IN_TILES and all(size % 4 == 0 for size in sizes)


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
    shape = (x.shape[0], few, heads // few, *x.shape[2:])
    wide = b.add(Expand(shape), b.reshape(x, (*x.shape[:2], 1, *x.shape[2:])))
    return b.reshape(wide, (x.shape[0], heads, *x.shape[2:]))


def _call_attention(w: CallWriter, node: Node) -> None:
    assert isinstance(node.op, Attention)
    args = [w.read(value) for value in node.inputs]
    w.add_rows_first(node, "mem_eff_attention", args, {"causal": node.op.causal == "upper_left"})


def _whole(source: int, shape: Shape) -> Strided:
    return Strided(source, 0, shape, contiguous_strides(shape))


def _kernel(node: Node, bounds: Bounds) -> OwnKernel:
    """The kernel on whole tensors: what read_in_place has not seen yet, so that it can be asked whether we have one."""
    assert isinstance(node.op, Attention)
    q, k, v = (_whole(index, value.shape) for index, value in enumerate(node.inputs[:3]))
    logits = (*q.shape[:3], k.shape[2])
    mask = Strided(3, 0, logits, (0,) * 4) if node.op.mask != "none" else None
    return _flash(StridedAttention(node.op, q, (k,), (v,), mask, rows_first=False), node)


def _strided_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    assert isinstance(node.op, StridedAttention)
    return _flash(node.op, node)


def _flash(op: StridedAttention, node: Node) -> OwnKernel:
    """The instance of flash_attention.cuh, and its numbers in the order that it reads them."""
    attention, dtype = op.attention, node.output.dtype
    sizes = (op.q.shape[3], op.values[0].shape[3])
    if dtype not in FLOATS:
        raise Refused(f"our kernel of attention takes float16, bfloat16 and float32, not {dtype.value}")
    if max(sizes) > _LARGEST:
        raise Refused(f"our kernel of attention has heads of up to {_LARGEST}, not {max(sizes)}")
    flags = [str(flag).lower() for flag in (attention.empty_rows_zero, attention.nan_rows_zero)]
    rules = [f"ortisan::Mask::{attention.mask}", f"ortisan::Causal::{attention.causal}", *flags]
    kind = f"ortisan::FlashKind<{', '.join([_ELEMENTS[dtype], *map(str, sizes), *rules])}>"
    past = op.keys[0].shape[2] if len(op.keys) == 2 else 0
    numbers: list[Dim] = [*op.q.shape[:3], op.keys[0].shape[1], past, op.keys[-1].shape[2]]
    numbers += [_bits(x) for x in (attention.scale, attention.softcap, attention.hidden_logit)]
    for part in (op.q, op.keys[0], op.keys[-1], op.values[0], op.values[-1]):
        numbers += [part.source, part.offset, *part.strides[:3]]
    numbers += [0] * 6 if op.mask is None else [op.mask.source, op.mask.offset, *op.mask.strides]
    strides = contiguous_strides(node.output.shape)
    ordered = (strides[0], strides[2], strides[1]) if op.rows_first else strides[:3]
    numbers += [len(node.inputs), 0, *ordered]
    source = calling("flash_attention.cuh", "flash_attention", kind)
    attributes = {"dtype": dtype.value, **_attributes(op)}
    return OwnKernel("attention", source, node.inputs, tuple(numbers), attributes)


def _bits(x: float) -> int:
    """A float32 as the integer that has its bits."""
    number: int = struct.unpack("<I", struct.pack("<f", x))[0]
    return number


def _attributes(op: StridedAttention) -> dict[str, Any]:
    a = op.attention
    return {
        "scale": a.scale,
        "softcap": a.softcap,
        "hidden": repr(a.hidden_logit),
        "mask": a.mask,
        "causal": a.causal,
        "empty_rows_zero": a.empty_rows_zero,
        "nan_rows_zero": a.nan_rows_zero,
        "rows_first": op.rows_first,
        "q": _part(op.q),
        "keys": [_part(part) for part in op.keys],
        "values": [_part(part) for part in op.values],
        "bias": None if op.mask is None else _part(op.mask),
    }


def _part(part: Strided) -> dict[str, Any]:
    return {"source": part.source, "offset": part.offset, "shape": list(part.shape), "strides": list(part.strides)}


OPS = (
    AitOp(Attention, rule=_attention_rule, compose=_compose_attention, call=_call_attention, kernel=_kernel),
    AitOp(StridedAttention, kernel=_strided_kernel),
)
