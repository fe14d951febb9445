"""Attention: one launch of a kernel of ours, which has every mask and reads all operands through strides.

AITemplate's mem_eff_attention is not used: it has no masks but lengths, whose 0 gives NaN, no past, and wants its
operands copied apart; with large heads it decides branches by shared memory that nobody wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds
from ortisan.codegen.ait.own import OwnKernel, calling, float_bits
from ortisan.codegen.ait.rules import FLOATS, Reason, static, takes_all
from ortisan.codegen.ait.strided import Strided, whole
from ortisan.codegen.ait.strided_ops import StridedAttention
from ortisan.codegen.expressions import contiguous_strides
from ortisan.registry.dims import Dim, settle
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import Attention
from ortisan.registry.ops.attention import Causality

_LARGEST = 1024
"""What the kernel for few queries has room for in registers and shared memory."""
_ELEMENTS = {DType.FLOAT32: "float", DType.FLOAT16: "__half", DType.BFLOAT16: "__nv_bfloat16"}


def _rule(node: Node, bounds: Bounds) -> Reason:
    """What speaks against our kernel."""
    q, k, v = node.inputs[:3]
    if node.output.dtype not in FLOATS:
        return f"our kernel of attention takes float16, bfloat16 and float32, not {node.output.dtype.value}"
    if reason := static((q.shape[1], k.shape[1], q.shape[3], v.shape[3]), "the number and the size of heads"):
        return reason
    largest = max(q.shape[3], v.shape[3])
    return f"our kernel of attention has heads of up to {_LARGEST}, not {largest}" if largest > _LARGEST else None


def _compose_attention(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Attention)
    op = replace(op, causal=_causality(op, inputs[0].shape[2], inputs[1].shape[2]))
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


def _kernel(node: Node, bounds: Bounds) -> OwnKernel:
    """The kernel on whole tensors: what read_in_place has not seen yet, so that it can be asked whether we have one."""
    assert isinstance(node.op, Attention)
    q, k, v = (whole(index, value.shape) for index, value in enumerate(node.inputs[:3]))
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
    flags = [str(flag).lower() for flag in (attention.empty_rows_zero, attention.nan_rows_zero)]
    rules = [f"ortisan::Mask::{attention.mask}", f"ortisan::Causal::{attention.causal}", *flags]
    kind = f"ortisan::FlashKind<{', '.join([_ELEMENTS[dtype], *map(str, sizes), *rules])}>"
    past = op.keys[0].shape[2] if len(op.keys) == 2 else 0
    numbers: list[Dim] = [*op.q.shape[:3], op.keys[0].shape[1], past, op.keys[-1].shape[2]]
    numbers += [float_bits(x) for x in (attention.scale, attention.softcap, attention.hidden_logit)]
    for part in (op.q, op.keys[0], op.keys[-1], op.values[0], op.values[-1]):
        numbers += [part.source, part.offset, *part.strides[:3]]
    numbers += [0] * 6 if op.mask is None else [op.mask.source, op.mask.offset, *op.mask.strides]
    strides = contiguous_strides(node.output.shape)
    ordered = (strides[0], strides[2], strides[1]) if op.rows_first else strides[:3]
    numbers += [len(node.inputs), 0, *ordered]
    source = calling("flash_attention.cuh", "flash_attention", kind)
    attributes = {"dtype": dtype.value, **_attributes(op)}
    return OwnKernel("attention", source, node.inputs, tuple(numbers), attributes)


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
        "q": op.q.to_json(),
        "keys": [part.to_json() for part in op.keys],
        "values": [part.to_json() for part in op.values],
        "bias": None if op.mask is None else op.mask.to_json(),
    }


OPS = (
    AitOp(Attention, compose=_compose_attention, ours=_rule, kernel=_kernel),
    AitOp(StridedAttention, ours=takes_all, kernel=_strided_kernel),
)
