"""Ops that torch.onnx has no function for, or one that is wrong for some arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnxscript import opset18 as op
from onnxscript.function_libs.torch_lib.ops.nn import aten_scaled_dot_product_attention

from ortisan.errors import UnsupportedError
from ortisan.torch.recurrent import TRANSLATIONS as RECURRENT

_aten = torch.ops.aten


def attention_on_cpus(  # noqa: PLR0917  # as aten has it
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    """What AOTAutograd leaves of scaled_dot_product_attention; several query heads may share one of the keys."""
    heads, groups = query.shape[1], key.shape[1]
    if heads != groups and not (isinstance(heads, int) and isinstance(groups, int)):
        raise UnsupportedError(
            f"attention whose numbers of heads are dynamic and differ ({heads} and {groups}) has no ONNX form; keep "
            "them static, with torch._dynamo.mark_dynamic on the other dims in place of dynamic=True"
        )
    result = aten_scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa=heads != groups
    )
    return result, op.Constant(value_floats=[0.0])


def distances(x: Any, y: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
    """x[..., P, M], y[..., R, M] -> [..., P, R]"""
    between = op.Sub(op.Unsqueeze(x, op.Constant(value_ints=[-2])), op.Unsqueeze(y, op.Constant(value_ints=[-3])))
    last = op.Constant(value_ints=[-1])
    if p == 2.0:
        return op.ReduceL2(between, last, keepdims=0)
    if p == 1.0:
        return op.ReduceL1(between, last, keepdims=0)
    if p == float("inf"):
        return op.ReduceMax(op.Abs(between), last, keepdims=0)
    raise UnsupportedError(f"aten.cdist is known for p = 1, 2 and infinity, and not for {p}")


def all_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Those below, of ops that torch has defined so far."""
    packets = {name: getattr(getattr(torch.ops, name.split(".")[0]), name.split(".")[1], None) for name in LATER}
    return {**TRANSLATIONS, **{op.default: LATER[name] for name, op in packets.items() if op is not None}}


def mapped_slices(body: Any, tensors: Sequence[Any], others: Sequence[Any]) -> Any:
    """`map` is a scan that carries nothing."""
    from torch.onnx._internal.exporter._torchlib.ops.hop import higher_order_scan  # not in every torch

    return higher_order_scan(body, [], tensors, others)


def multiply_add(a: Any, b: Any, c: Any) -> Any:
    return op.Add(op.Mul(a, b), c)


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    **RECURRENT,
    _aten._scaled_dot_product_flash_attention_for_cpu.default: attention_on_cpus,
    _aten._cdist_forward.default: distances,
    _aten.cdist.default: distances,
    torch.ops.higher_order.map_impl: mapped_slices,
}

LATER: dict[str, Callable[..., Any]] = {"prims.fma": multiply_add}
"""The same for ops that torch defines when it first needs them."""
