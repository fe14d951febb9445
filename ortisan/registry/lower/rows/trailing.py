"""Normalisations of the trailing dims, of ONNX and of ONNX Runtime."""

from __future__ import annotations

from ortisan.registry.axes import normalize_axis
from ortisan.registry.builder import Builder
from ortisan.registry.entries import CONTRIB_DOMAIN, Result, Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import Expand, LayerNorm, Reduce, RmsNorm
from ortisan.registry.refusal import Refused


# stash_type 1 asks for statistics in float32, which is what every target does at least.
@lowers("LayerNormalization", since=1, attributes=["axis", "epsilon", "stash_type"])
def layer_norm(site: Site) -> Result:
    x, gamma, beta = site.need(0), site.need(1), site.optional(2)
    axis = normalize_axis(site.attribute("axis", -1), len(x.shape))
    statistics = any(site.used[1:])
    op = LayerNorm(axis, float(site.attribute("epsilon", 1e-5)), True, beta is not None, statistics)
    affine = [_as_row(site.builder, value, x, axis) for value in (gamma, beta) if value is not None]
    return site.builder.add_many(op, x, *affine)


def _as_row(b: Builder, value: Value, x: Value, axis: int) -> Value:
    """Scale or bias in the normalized shape: leading dims of 1 are dropped, smaller shapes broadcast."""
    shape = x.shape[axis:]
    extra = max(0, len(value.shape) - len(shape))
    if any(dim != 1 for dim in value.shape[:extra]):
        raise Refused(f"a scale or bias of {value.type} is not of the shape that is normalized")
    row = b.reshape(value, value.shape[extra:]) if extra else value
    return row if row.shape == shape else b.add(Expand(shape), row)


@lowers("RMSNormalization", since=23, attributes=["axis", "epsilon", "stash_type"])
@lowers("SimplifiedLayerNormalization", attributes=["axis", "epsilon", "stash_type"])
def rms_norm(site: Site) -> Value:
    """ONNX Runtime writes SimplifiedLayerNormalization into the default domain."""
    site.refuse_outputs(1)
    x, gamma = site.need(0), site.need(1)
    axis = normalize_axis(site.attribute("axis", -1), len(x.shape))
    return _rms_norm(site, x, gamma, axis, 1e-5)


def _rms_norm(site: Site, x: Value, gamma: Value, axis: int, epsilon: float) -> Value:
    b, epsilon = site.builder, float(site.attribute("epsilon", epsilon))
    if gamma.dtype is x.dtype:
        return b.add(RmsNorm(axis, epsilon), x, _as_row(b, gamma, x, axis))
    # The result has the type of the scale, and what it scales is rounded to that type first.
    plain = b.add(RmsNorm(axis, epsilon, gamma=False), x)
    return b.elementwise("MUL", b.cast(plain, gamma.dtype), gamma)


@lowers("SkipSimplifiedLayerNormalization", attributes=["epsilon"], domain=CONTRIB_DOMAIN)
def skip_rms_norm(site: Site) -> Result:
    """rms_norm(input + skip + bias); the fourth output is the sum."""
    site.refuse_outputs(1, 2)
    b, bias = site.builder, site.optional(3)
    total = b.elementwise("ADD", site.need(0), site.need(1))
    if bias is not None:
        total = b.elementwise("ADD", total, bias)
    normal = _rms_norm(site, total, site.need(2), len(total.shape) - 1, 1e-12)
    return normal, normal, normal, total


@lowers("LpNormalization", since=1, attributes=["axis", "p"])
def lp_norm(site: Site) -> Value:
    b, x = site.builder, site.need(0)
    axis = normalize_axis(site.attribute("axis", -1), len(x.shape))
    kind = {1: "l1", 2: "l2"}.get(site.attribute("p", 2))
    if kind is None:
        raise Refused(f"LpNormalization with p={site.attribute('p', 2)} is not defined")
    norm = b.add(Reduce(kind, axis, axis, keepdim=True), x)
    zero = b.number(0, x.dtype)
    return b.elementwise("WHERE", b.elementwise("EQ", norm, zero), zero, b.elementwise("DIV", x, norm))
