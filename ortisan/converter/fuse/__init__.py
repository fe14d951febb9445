"""Fuses written-out formulas into single ops of the private domain, and expands those that are not compiled."""

from __future__ import annotations

import functools

import onnx_ir as ir

from ortisan.converter.fuse.attention import Attention
from ortisan.converter.fuse.formula import Formula, Frozen, apply_formula
from ortisan.converter.fuse.gelu import Gelu
from ortisan.converter.fuse.heads import share_heads
from ortisan.converter.fuse.layer_norm import LayerNormalization
from ortisan.converter.fuse.outline import expand_private
from ortisan.converter.fuse.rms_norm import RMSNormalization
from ortisan.converter.fuse.rotary import RotaryEmbedding
from ortisan.converter.fuse.straighten import straighten_transposes
from ortisan.converter.fuse.unmerge import unmerge_heads
from ortisan.converter.passes.near_miss import NearMiss
from ortisan.converter.passes.optional import OptionalPasses
from ortisan.registry.entries import PRIVATE_DOMAIN

__all__ = ["PRIVATE_DOMAIN", "expand_private", "fuse_patterns"]

_FORMULAS: tuple[type[Formula], ...] = (LayerNormalization, RMSNormalization, Gelu, RotaryEmbedding, Attention)


def fuse_patterns(model: ir.Model, frozen: Frozen, optional: OptionalPasses) -> tuple[dict[str, int], list[NearMiss]]:
    """Fuses in place; needs shapes. Returns how often each formula was fused, and the near misses.

    No node for which `frozen` is true is fused. The fused ops of domain `PRIVATE_DOMAIN` are

        LayerNormalization(x, scale, bias?) {axis < 0, epsilon}
        Gelu(x) {approximate: none | tanh}
        RMSNormalization(x, scale) {axis < 0, epsilon}
        RotaryEmbedding(x, cos, sin) {size, interleaved}
        Attention(q, k, v, mask?) {scale, cap, mask: none | additive | boolean, hidden, guarded}

    and each call has its body as a model-local function, told apart by overload.
    """
    changes = {
        "straighten transposes": straighten_transposes,
        "unmerge heads": unmerge_heads,
        "share heads": share_heads,
    }
    counts = {name: optional.run(name, functools.partial(change, model, frozen), 0) for name, change in changes.items()}
    near_misses: list[NearMiss] = []
    nothing: tuple[int, list[NearMiss]] = (0, [])
    for kind in _FORMULAS:
        formula, name = kind(model.opset_imports.get("", 0)), f"fuse {kind.op_type}"
        action = functools.partial(apply_formula, formula, model, frozen)
        counts[name], misses = optional.run(name, action, nothing)
        near_misses.extend(misses)
    return counts, near_misses
