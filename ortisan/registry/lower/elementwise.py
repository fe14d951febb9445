"""Elementwise ONNX ops. Most are rows of the scalar table; the rest need an attribute, a chain or a cast."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from ortisan.registry.builder import is_constant
from ortisan.registry.dtypes import DType
from ortisan.registry.entries import CONTRIB_DOMAIN, ML_DOMAIN, Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.refusal import Refused
from ortisan.registry.scalars import SCALARS, Scalar


def _from_table(row: Scalar) -> Callable[[Site], Value]:
    def lower(site: Site) -> Value:
        operands = [site.need(index) for index in range(row.arity)]
        return site.builder.elementwise(row.name, *operands)

    return lower


for _row in SCALARS.values():
    for _op_type in _row.onnx:
        # The oldest definitions had attributes (broadcast, consumed_inputs), which are refused as not understood.
        lowers(_op_type)(_from_table(_row))


_WITH_PARAMS: dict[str, tuple[str, tuple[tuple[str, float], ...]]] = {
    "LeakyRelu": ("LRELU", (("alpha", 0.01),)),
    "Elu": ("ELU", (("alpha", 1.0),)),
    "Selu": ("SELU", (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875))),
    "Celu": ("CELU", (("alpha", 1.0),)),
    "HardSigmoid": ("HARDSIGMOID", (("alpha", 0.2), ("beta", 0.5))),
    "ThresholdedRelu": ("THRESHOLDED_RELU", (("alpha", 1.0),)),
    "Shrink": ("SHRINK", (("lambd", 0.5), ("bias", 0.0))),
    "IsInf": ("ISINF", (("detect_negative", 1), ("detect_positive", 1))),
}


def _with_params(func: str, params: tuple[tuple[str, float], ...]) -> Callable[[Site], Value]:
    def lower(site: Site) -> Value:
        # An attribute is a float32, and so is the default that stands for it: 0.2 is not 0.2 in float64.
        values = tuple(float(np.float32(site.attribute(name, default))) for name, default in params)
        return site.builder.elementwise(func, site.need(0), params=values)

    return lower


for _op_type, (_func, _params) in _WITH_PARAMS.items():
    lowers(_op_type, since=6, attributes=[name for name, _ in _params])(_with_params(_func, _params))


def _chain(func: str) -> Callable[[Site], Value]:
    def lower(site: Site) -> Value:
        operands = [site.need(index) for index in range(len(site.inputs))]
        return reduce(lambda a, b: site.builder.elementwise(func, a, b), operands)

    return lower


lowers("Max", since=6)(_chain("MAX"))
lowers("Min", since=6)(_chain("MIN"))
lowers("Sum", since=6)(_chain("ADD"))


@lowers("Mean", since=6)
def mean(site: Site) -> Value:
    total = _chain("ADD")(site)
    count = site.builder.number(len(site.inputs), total.dtype)
    return site.builder.elementwise("DIV", total, count)


@lowers("Pow", since=7)
def power(site: Site) -> Value:
    b, x, exponent = site.builder, site.need(0), site.need(1)
    if is_constant(exponent) and exponent.data is not None and exponent.data.size == 1:
        number = float(exponent.data.reshape(()))
        if number == 2 and len(exponent.shape) <= len(x.shape):
            return b.elementwise("MUL", x, x)
        if number == 3 and len(exponent.shape) <= len(x.shape):
            return b.elementwise("MUL", x, b.elementwise("MUL", x, x))
    if x.dtype.is_integer and exponent.dtype.is_float:
        wide = b.elementwise("POW", b.cast(x, DType.FLOAT64), b.cast(exponent, DType.FLOAT64))
        return b.cast(wide, x.dtype)
    return b.elementwise("POW", x, b.cast(exponent, x.dtype))


@lowers("Mod", since=10, attributes=["fmod"])
def modulo(site: Site) -> Value:
    x = site.need(0)
    if site.attribute("fmod", 0):
        return site.builder.elementwise("FMOD", x, site.need(1))
    if x.dtype.is_float:
        raise Refused("Mod of floats needs the attribute fmod=1")
    return site.builder.elementwise("MOD", x, site.need(1))


@lowers("BitShift", since=11, attributes=["direction"])
def bit_shift(site: Site) -> Value:
    func = {"LEFT": "SHIFT_LEFT", "RIGHT": "SHIFT_RIGHT"}.get(site.attribute("direction", ""))
    if func is None:
        raise Refused("BitShift needs the attribute direction, LEFT or RIGHT")
    return site.builder.elementwise(func, site.need(0), site.need(1))


def _clamp(site: Site, low: Value | None, high: Value | None) -> Value:
    b, x = site.builder, site.need(0)
    for bound in (low, high):
        if bound is not None and bound.shape != ():
            raise Refused(f"the bound {bound.type} is not a scalar")
    if low is not None and high is not None:
        return b.elementwise("CLAMP", x, low, high)
    if low is not None:
        return b.elementwise("MAX", x, low)
    return b.elementwise("MIN", x, high) if high is not None else x


@lowers("Clip", since=6, until=6, attributes=["min", "max"])
def clip_attributes(site: Site) -> Value:
    bounds = [site.attributes.get(name) for name in ("min", "max")]
    dtype = site.need(0).dtype
    low, high = (None if bound is None else site.builder.number(bound, dtype) for bound in bounds)
    return _clamp(site, low, high)


@lowers("Clip", since=11)
def clip(site: Site) -> Value:
    return _clamp(site, site.optional(1), site.optional(2))


def _cast(site: Site, number: int) -> Value:
    to = DType.from_onnx(number)
    if to is None:
        raise Refused(f"a cast to ONNX element type {number} is not supported")
    return site.builder.cast(site.need(0), to)


# saturate and round_mode steer casts to 8-bit floats, which are refused by their type.
@lowers("Cast", since=6, attributes=["to", "saturate", "round_mode"])
def cast(site: Site) -> Value:
    return _cast(site, site.attribute("to", 0))


@lowers("CastLike", since=15, attributes=["saturate", "round_mode"])
def cast_like(site: Site) -> Value:
    return _cast(site, site.need(1).dtype.onnx)


@lowers("Identity")
def identity(site: Site) -> Value:
    return site.need(0)


@lowers("Dropout", since=6, attributes=["ratio", "seed", "is_test"])
def dropout(site: Site) -> Value:
    mode = site.optional(2)
    if mode is not None and (not is_constant(mode) or mode.data is None or bool(mode.data)):
        raise Refused("Dropout in training mode is random")
    site.refuse_outputs(1)
    return site.need(0)


@lowers("Gelu", since=20, attributes=["approximate"])
def gelu(site: Site) -> Value:
    approximate = site.attribute("approximate", "none")
    func = {"none": "GELU", "tanh": "FASTGELU"}.get(approximate)
    if func is None:
        raise Refused(f"Gelu approximation '{approximate}' is not defined")
    return site.builder.elementwise(func, site.need(0))


@lowers("Swish", since=24, attributes=["alpha"])
def swish(site: Site) -> Value:
    b, x, alpha = site.builder, site.need(0), site.attribute("alpha", 1.0)
    if alpha == 1.0:
        return b.elementwise("SILU", x)
    gate = b.elementwise("SIGMOID", b.elementwise("MUL", x, b.number(alpha, x.dtype)))
    return b.elementwise("MUL", x, gate)


@lowers("QuickGelu", attributes=["alpha"], domain=CONTRIB_DOMAIN)
def quick_gelu(site: Site) -> Value:
    """x * sigmoid(alpha * x)."""
    b, x, alpha = site.builder, site.need(0), float(site.attribute("alpha", 1.702))
    if alpha == 1.0:
        return b.elementwise("SILU", x)
    return b.elementwise("MUL", x, b.elementwise("SIGMOID", b.elementwise("MUL", x, b.number(alpha, x.dtype))))


@lowers("Scaler", domain=ML_DOMAIN, attributes=["offset", "scale"])
def scaler(site: Site) -> Value:
    """(x - offset) * scale in float32, with one number for all features or one for each."""
    b, x = site.builder, site.need(0)
    if len(x.shape) not in (1, 2):
        raise Refused(f"Scaler is supported for rows of features, not for {x.type}")
    numbers = [np.array(site.attribute(name, []), np.float32) for name in ("offset", "scale")]
    if any(given.size not in (1, x.shape[-1]) or not given.size for given in numbers):
        raise Refused(f"Scaler has {numbers[0].size} offsets and {numbers[1].size} scales for {x.type}")
    offset, scale = (b.constant(given) for given in numbers)
    return b.elementwise("MUL", b.elementwise("SUB", b.cast(x, DType.FLOAT32), offset), scale)
