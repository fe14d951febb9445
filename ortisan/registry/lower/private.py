"""Ops of the private domain `ortisan`: what the converter's fuse passes write."""

from __future__ import annotations

from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.elementwise import gelu
from ortisan.registry.lower.norm import layer_norm
from ortisan.registry.ops import Attention

PRIVATE_DOMAIN = "ortisan"

lowers("Gelu", attributes=["approximate"], domain=PRIVATE_DOMAIN)(gelu)
lowers("LayerNormalization", attributes=["axis", "epsilon"], domain=PRIVATE_DOMAIN)(layer_norm)


@lowers("Attention", attributes=["scale", "mask", "fully_masked", "causal"], domain=PRIVATE_DOMAIN)
def attention(site: Site) -> Value:
    op = Attention(
        float(site.attribute("scale", 1.0)),
        site.attribute("mask", "none"),
        site.attribute("fully_masked", "softmax") == "zero",
        site.attribute("causal", "none"),
    )
    operands = [site.need(index) for index in range(3 if op.mask == "none" else 4)]
    return site.builder.add(op, *operands)
