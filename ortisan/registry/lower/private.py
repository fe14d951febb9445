"""Ops of the private domain `ortisan`: what the converter's fuse passes write."""

from __future__ import annotations

from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.elementwise import gelu
from ortisan.registry.lower.rows import layer_norm, rms_norm
from ortisan.registry.ops import Attention, Rotary

PRIVATE_DOMAIN = "ortisan"

lowers("Gelu", attributes=["approximate"], domain=PRIVATE_DOMAIN)(gelu)
lowers("LayerNormalization", attributes=["axis", "epsilon"], domain=PRIVATE_DOMAIN)(layer_norm)
lowers("RMSNormalization", attributes=["axis", "epsilon"], domain=PRIVATE_DOMAIN)(rms_norm)


@lowers("RotaryEmbedding", attributes=["size", "interleaved"], domain=PRIVATE_DOMAIN)
def rotary(site: Site) -> Value:
    op = Rotary(site.attribute("size", 0), bool(site.attribute("interleaved", 0)))
    return site.builder.add(op, *(site.need(index) for index in range(3)))


@lowers("Attention", attributes=["scale", "cap", "mask", "hidden", "guarded", "causal"], domain=PRIVATE_DOMAIN)
def attention(site: Site) -> Value:
    guarded = bool(site.attribute("guarded", 0))
    op = Attention(
        float(site.attribute("scale", 1.0)),
        site.attribute("mask", "none"),
        causal=site.attribute("causal", "none"),
        softcap=float(site.attribute("cap", 0.0)),
        hidden=float(site.attribute("hidden", 0.0)) if site.attribute("mask", "none") == "boolean" else None,
        nan_rows_zero=guarded,
    )
    operands = [site.need(index) for index in range(3 if op.mask == "none" else 4)]
    return site.builder.add(op, *operands)
