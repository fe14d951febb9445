"""Normalisations of channels: of batches, instances and groups."""

from __future__ import annotations

from ortisan.registry.builder import Builder, is_constant
from ortisan.registry.dims import Dim, Facts, is_static, product
from ortisan.registry.entries import CONTRIB_DOMAIN, Result, Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import Expand, GroupNorm, LayerNorm
from ortisan.registry.refusal import Refused


def _per_channel(b: Builder, value: Value, rank: int) -> Value:
    return b.reshape(value, (*value.shape, *(1 for _ in range(rank - 2))))


@lowers("BatchNormalization", since=7, attributes=["epsilon", "momentum", "spatial", "training_mode"])
def batch_norm(site: Site) -> Value:
    if site.attribute("training_mode", 0) or not site.attribute("spatial", 1):
        raise Refused("BatchNormalization in training mode or with spatial=0 is not supported")
    site.refuse_outputs(1, 2, 3, 4)
    b, x = site.builder, site.need(0)
    scale, bias, mean, variance = (site.need(i) for i in range(1, 5))
    deviation = b.elementwise(
        "SQRT", b.elementwise("ADD", variance, b.number(site.attribute("epsilon", 1e-5), x.dtype))
    )
    factor = b.elementwise("DIV", scale, deviation)
    shift = b.elementwise("SUB", bias, b.elementwise("MUL", mean, factor))
    rank = len(x.shape)
    scaled = b.elementwise("MUL", x, _per_channel(b, factor, rank))
    return b.elementwise("ADD", scaled, _per_channel(b, shift, rank))


def _affine(b: Builder, x: Value, scale: Value, bias: Value) -> Value:
    """x scale + bias per channel; exporters write factors of 1 and terms of 0 where there are none."""
    rank = len(x.shape)
    for func, value, neutral in (("MUL", scale, 1), ("ADD", bias, 0)):
        if not is_constant(value) or value.data is None or (value.data != neutral).any():
            x = b.elementwise(func, x, _per_channel(b, value, rank))
    return x


@lowers("InstanceNormalization", since=6, attributes=["epsilon"])
def instance_norm(site: Site) -> Value:
    b, x, scale, bias = site.builder, site.need(0), site.need(1), site.need(2)
    if len(x.shape) < 3:
        raise Refused(f"InstanceNormalization needs batch, channels and places, not {x.type}")
    facts = Facts(b.origin)
    for value in (scale, bias):
        facts.equal(product(value.shape), x.shape[1], "scale and channels")
    b.guards.update(dict.fromkeys(facts.guards))
    op = LayerNorm(2, float(site.attribute("epsilon", 1e-5)), gamma=False, beta=False)
    return _affine(b, b.add(op, x), scale, bias)


# The first definition has a scale and a bias per group, the second one per channel.
@lowers("GroupNormalization", since=18, until=18, attributes=["epsilon", "num_groups"])
@lowers("GroupNormalization", since=21, attributes=["epsilon", "num_groups", "stash_type"])
def group_norm(site: Site) -> Value:
    b, x = site.builder, site.need(0)
    groups = int(site.attribute("num_groups", 0))
    channels = _channels_of_groups(x.shape[1], groups)
    affine = [site.need(1), site.need(2)]
    if site.version < 21:
        affine = [_repeated(b, value, groups, channels) for value in affine]
    grouped = b.reshape(x, (x.shape[0], groups, product((channels, *x.shape[2:]))))
    op = LayerNorm(2, float(site.attribute("epsilon", 1e-5)), gamma=False, beta=False)
    return _affine(b, b.reshape(b.add(op, grouped), x.shape), *affine)


def _channels_of_groups(channels: Dim, groups: int) -> Dim:
    if not is_static(channels) or groups < 1 or channels % groups:
        raise Refused(f"{channels} channels can't be normalised in {groups} groups")
    return channels // groups


def _repeated(b: Builder, value: Value, groups: int, count: Dim) -> Value:
    if value.shape != (groups,):
        raise Refused(f"the scale and bias of {groups} groups can't be {value.type}")
    return b.reshape(b.add(Expand((groups, count)), b.reshape(value, (groups, 1))), (groups * count,))


_GROUP_NORM = ("activation", "channels_last", "epsilon", "groups")


@lowers("GroupNorm", attributes=_GROUP_NORM, domain=CONTRIB_DOMAIN)
def contrib_group_norm(site: Site) -> Value:
    return _channels_normalized(site, site.need(0))


@lowers("SkipGroupNorm", attributes=_GROUP_NORM, domain=CONTRIB_DOMAIN)
def skip_group_norm(site: Site) -> Result:
    """group_norm(x + skip + bias); the second output is the sum."""
    b, x, skip, bias = site.builder, site.need(0), site.need(3), site.optional(4)
    if len(skip.shape) == 2:
        skip = b.reshape(skip, (skip.shape[0], 1, 1, skip.shape[1]))
    total = b.elementwise("ADD", x, skip)
    if bias is not None:
        total = b.elementwise("ADD", total, bias)
    return _channels_normalized(site, total), total


def _channels_normalized(site: Site, x: Value) -> Value:
    """Of [N,H,W,C], unless the channels are first."""
    b, is_last = site.builder, bool(site.attribute("channels_last", 1))
    groups, activation = int(site.attribute("groups", 0)), int(site.attribute("activation", 0))
    if len(x.shape) != 4 or activation not in (0, 1):
        raise Refused(f"{site.op_type} of {x.type} with activation={activation} is not supported")
    _channels_of_groups(x.shape[3 if is_last else 1], groups)
    image = x if is_last else b.permute(x, (0, 2, 3, 1))
    affine = (b.cast(site.need(index), x.dtype) for index in (1, 2))
    y = b.add(GroupNorm(groups, float(site.attribute("epsilon", 1e-5))), image, *affine)
    y = y if is_last else b.permute(y, (0, 3, 1, 2))
    return b.elementwise("MUL", y, b.elementwise("SIGMOID", y)) if activation else y
