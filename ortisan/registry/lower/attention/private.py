"""Attention of the private domain, which the converter's pattern writes: every choice is an attribute."""

from __future__ import annotations

from ortisan.registry.entries import PRIVATE_DOMAIN, Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import Attention


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
