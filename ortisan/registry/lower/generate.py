"""Tensors that no data flows into: Shape, Size, Range, ConstantOfShape, Constant."""

from __future__ import annotations

import numpy as np

from ortisan.registry.builder import known_dims
from ortisan.registry.dims import ceil_div, is_static, maximum, product
from ortisan.registry.dtypes import DType
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import Arange, Full, Size
from ortisan.registry.refusal import Refused


@lowers("Shape", attributes=["start", "end"])
def shape_of(site: Site) -> Value:
    shape = site.need(0).shape
    return site.builder.add(Size(shape[slice(site.attribute("start", 0), site.attributes.get("end"))]))


@lowers("Size")
def size_of(site: Site) -> Value:
    dims = np.empty((), dtype=object)
    dims[()] = product(site.need(0).shape)
    return site.builder.from_dims(dims, DType.INT64)


@lowers("Range", since=11)
def range_of(site: Site) -> Value:
    first = site.need(0)
    if first.dtype.is_float:
        return _float_range(site)
    start, limit, delta = (known_dims(site.need(i), "a bound of Range")[0] for i in range(3))
    if not is_static(delta) or delta == 0:
        raise Refused("the step of Range must be a constant other than 0")
    span, step = (limit - start, delta) if delta > 0 else (start - limit, -delta)
    length = maximum(0, ceil_div(span, step))
    return site.builder.add(Arange(start, delta, length, first.dtype))


def _float_range(site: Site) -> Value:
    bounds = [site.need(i) for i in range(3)]
    if any(value.data is None or value.data.dtype == object for value in bounds):
        raise Refused("a Range of floats with computed bounds has no known length")
    start, limit, delta = (float(np.asarray(value.data).reshape(())) for value in bounds)
    count = max(int(np.ceil((limit - start) / delta)), 0)
    dtype = bounds[0].dtype.numpy
    return site.builder.constant((start + delta * np.arange(count)).astype(dtype))


@lowers("ConstantOfShape", since=9, attributes=["value"])
def constant_of_shape(site: Site) -> Value:
    shape = tuple(known_dims(site.need(0), "the shape of ConstantOfShape"))
    value = site.attribute("value", np.zeros(1, np.float32))
    dtype = DType.from_numpy(value.dtype)
    return site.builder.add(Full(shape, value.reshape(-1)[0].item(), dtype))


@lowers("Constant", attributes=["value", "value_float", "value_floats", "value_int", "value_ints"])
def constant(site: Site) -> Value:
    ((name, value),) = site.attributes.items()
    dtype = np.float32 if "float" in name else np.int64
    return site.builder.constant(value if name == "value" else np.array(value, dtype))
