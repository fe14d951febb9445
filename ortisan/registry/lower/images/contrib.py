"""Convolutions of ONNX Runtime's optimizer: with an activation, a tensor that is added, the channels last."""

from __future__ import annotations

from dataclasses import replace

from ortisan.registry.entries import CONTRIB_DOMAIN, Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.images.convolutions import convolution
from ortisan.registry.lower.images.windows import CHANNELS_FIRST, CHANNELS_LAST
from ortisan.registry.refusal import Refused

_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_ACTIVATION = ("activation", "activation_params")
_PARAMS = {"Relu": ("RELU", 0), "Sigmoid": ("SIGMOID", 0), "Tanh": ("TANH", 0)}
_PARAMS |= {"LeakyRelu": ("LRELU", 1), "HardSigmoid": ("HARDSIGMOID", 2)}


@lowers("FusedConv", attributes=[*_CONV, *_ACTIVATION], domain=CONTRIB_DOMAIN)
def fused_conv(site: Site) -> Value:
    return _finished(site, convolution(site))


@lowers("NhwcFusedConv", attributes=[*_CONV, *_ACTIVATION], domain=CONTRIB_DOMAIN)
def nhwc_fused_conv(site: Site) -> Value:
    return _finished(site, _channels_last(site))


@lowers("NhwcConv", attributes=_CONV, domain=CONTRIB_DOMAIN)
def nhwc_conv(site: Site) -> Value:
    return _channels_last(site)


def _channels_last(site: Site) -> Value:
    """The image has its channels last, the filters have them where Conv has them."""
    b, x = site.builder, site.need(0)
    if len(x.shape) != 4:
        raise Refused(f"{site.op_type} needs images with 4 dims, not {x.type}")
    first = replace(site, inputs=(b.permute(x, CHANNELS_FIRST), *site.inputs[1:]))
    return b.permute(convolution(first), CHANNELS_LAST)


def _finished(site: Site, y: Value) -> Value:
    b, added = site.builder, site.optional(3)
    if added is not None:
        y = b.elementwise("ADD", y, added)
    activation = site.text("activation", "")
    params = tuple(float(number) for number in site.attributes.get("activation_params") or ())
    if not activation:
        return y
    if activation == "Clip" and len(params) == 2:
        return b.elementwise("CLAMP", y, *(b.number(bound, y.dtype) for bound in params))
    func, count = _PARAMS.get(activation, ("", 0))
    if not func or len(params) != count:
        raise Refused(f"{site.op_type} with activation={activation} and {len(params)} numbers is not supported")
    return b.elementwise(func, y, params=params)
