"""Shapes and data movement: Reshape, Transpose, Concat, Split, Expand, Tile, Pad, Shape, Range and their kin."""

from __future__ import annotations

import numpy as np

from ortisan.registry.builder import known_dims, known_ints
from ortisan.registry.dims import Dim, Facts, ceil_div, is_static, maximum, product
from ortisan.registry.dtypes import DType
from ortisan.registry.entries import Result, Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.axes import normalize_axis, read_axes
from ortisan.registry.ops import Arange, Concatenate, Expand, Full, Pad, Size, Split, Trilu
from ortisan.registry.ops.move import PadMode
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


def _requested_shape(x: Value, dims: list[Dim], allow_zero: bool, facts: Facts) -> tuple[Dim, ...]:
    """Resolves the 0 (copy this dim) and -1 (what is left) of ONNX's Reshape."""
    if dims.count(-1) > 1:
        raise Refused(f"the shape {dims} has more than one -1")
    shape = list(dims)
    for axis, dim in enumerate(dims):
        if dim == 0 and not allow_zero:
            if axis >= len(x.shape):
                raise Refused(f"the shape {dims} copies dim {axis}, which {x.type} does not have")
            shape[axis] = x.shape[axis]
        elif is_static(dim) and dim < -1:
            raise Refused(f"the shape {dims} has a negative dim")
    if -1 in dims:
        rest = product(dim for axis, dim in enumerate(shape) if dims[axis] != -1)
        if rest == 0:
            raise Refused(f"the shape {dims} has a -1 beside a zero")
        shape[dims.index(-1)] = facts.divisible(product(x.shape), rest, f"reshape of {x.type} to {dims}")
    return tuple(shape)


@lowers("Reshape", since=5, attributes=["allowzero"])
def reshape(site: Site) -> Value:
    b, x = site.builder, site.need(0)
    dims = known_dims(site.need(1), "the new shape")
    facts = Facts(b.origin)
    shape = _requested_shape(x, dims, bool(site.attribute("allowzero", 0)), facts)
    b.guards.update(dict.fromkeys(facts.guards))
    return b.reshape(x, shape)


@lowers("Flatten", attributes=["axis"])
def flatten(site: Site) -> Value:
    x = site.need(0)
    axis = normalize_axis(site.attribute("axis", 1), len(x.shape), upper=len(x.shape))
    return site.builder.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))


@lowers("Squeeze", attributes=["axes"])
def squeeze(site: Site) -> Value:
    b, x = site.builder, site.need(0)
    axes = read_axes(site, len(x.shape), input_index=1)
    if axes is None:
        if not all(is_static(dim) for dim in x.shape):
            raise Refused(f"Squeeze without axes of {x.type}: which dims are 1 is not known before it runs")
        axes = tuple(axis for axis, dim in enumerate(x.shape) if dim == 1)
    return b.reshape(x, (dim for axis, dim in enumerate(x.shape) if axis not in axes))


@lowers("Unsqueeze", attributes=["axes"])
def unsqueeze(site: Site) -> Value:
    b, x = site.builder, site.need(0)
    given = site.attributes.get("axes")
    axes = given if given is not None else known_ints(site.need(1), "the axes")
    rank = len(x.shape) + len(axes)
    places = {normalize_axis(axis, rank) for axis in axes}
    dims = iter(x.shape)
    return b.reshape(x, (1 if axis in places else next(dims) for axis in range(rank)))


@lowers("Transpose", attributes=["perm"])
def transpose(site: Site) -> Value:
    x = site.need(0)
    return site.builder.permute(x, site.attribute("perm", list(reversed(range(len(x.shape))))))


@lowers("Concat", since=4, attributes=["axis"])
def concat(site: Site) -> Value:
    parts = [site.need(index) for index in range(len(site.inputs))]
    axis = normalize_axis(site.attribute("axis", 0), len(parts[0].shape))
    return parts[0] if len(parts) == 1 else site.builder.add(Concatenate(axis), *parts)


@lowers("Split", since=2, attributes=["axis", "split", "num_outputs"])
def split(site: Site) -> Result:
    x = site.need(0)
    axis = normalize_axis(site.attribute("axis", 0), len(x.shape))
    sizes = site.attributes.get("split")
    given = site.optional(1)
    if sizes is None and given is not None:
        sizes = known_dims(given, "the sizes of Split")
    if sizes is None:
        sizes = _even_pieces(x.shape[axis], site.attribute("num_outputs", len(site.used)))
    return site.builder.add_many(Split(axis, tuple(sizes)), x)


def _even_pieces(dim: Dim, count: int) -> list[Dim]:
    if not is_static(dim):
        raise Refused("Split of a dynamic dim into equal pieces: the last one's size is not known")
    piece = -(-dim // count)
    return [max(min(piece, dim - piece * index), 0) for index in range(count)]


@lowers("Expand", since=8)
def expand(site: Site) -> Value:
    x = site.need(0)
    dims = known_dims(site.need(1), "the shape of Expand")
    rank = max(len(dims), len(x.shape))
    target = (*(1 for _ in range(rank - len(dims))), *dims)
    return x if tuple(target) == x.shape else site.builder.add(Expand(target), x)


@lowers("Tile", since=6)
def tile(site: Site) -> Value:
    b, x = site.builder, site.need(0)
    repeats = known_dims(site.need(1), "the repeats of Tile")
    if len(repeats) != len(x.shape):
        raise Refused(f"{len(repeats)} repeats for the {len(x.shape)} dims of {x.type}")
    apart = b.reshape(x, (d for dim in x.shape for d in (1, dim)))
    repeated = [d for repeat, dim in zip(repeats, x.shape, strict=True) for d in (repeat, dim)]
    return b.reshape(
        b.add(Expand(tuple(repeated)), apart),
        (product(pair) for pair in zip(repeats, x.shape, strict=True)),
    )


def _pad(site: Site, pads: list[Dim], axes: list[int], value: Value | None) -> Value:
    x = site.need(0)
    mode: PadMode = site.attribute("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise Refused(f"Pad mode '{mode}' is not defined")
    before: list[Dim] = [0] * len(x.shape)
    after: list[Dim] = [0] * len(x.shape)
    for index, axis in enumerate(axes):
        before[axis], after[axis] = pads[index], pads[index + len(axes)]
    extra = (value,) if value is not None and mode == "constant" else ()
    return site.builder.add(Pad(tuple(before), tuple(after), mode), x, *extra)


@lowers("Pad", since=2, until=2, attributes=["mode", "pads", "value"])
def pad_attributes(site: Site) -> Value:
    x = site.need(0)
    value = site.builder.number(site.attribute("value", 0.0), x.dtype)
    return _pad(site, site.attribute("pads", []), list(range(len(x.shape))), value)


@lowers("Pad", since=11, attributes=["mode"])
def pad(site: Site) -> Value:
    rank, given = len(site.need(0).shape), site.optional(3)
    axes = range(rank) if given is None else known_ints(given, "the axes of Pad")
    pads = known_dims(site.need(1), "the widths of Pad")
    return _pad(site, pads, [normalize_axis(axis, rank) for axis in axes], site.optional(2))


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


@lowers("Trilu", since=14, attributes=["upper"])
def trilu(site: Site) -> Value:
    given = site.optional(1)
    k = 0 if given is None else known_ints(given, "the diagonal of Trilu")[0]
    return site.builder.add(Trilu(bool(site.attribute("upper", 1)), k), site.need(0))


@lowers("DepthToSpace", attributes=["blocksize", "mode"])
def depth_to_space(site: Site) -> Value:
    b, x = site.builder, site.need(0)
    n, c, h, w = x.shape
    size, mode = site.attribute("blocksize", 1), site.attribute("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise Refused(f"DepthToSpace mode '{mode}' is not defined")
    if mode == "DCR":
        split_up = b.reshape(x, (n, size, size, c // (size * size), h, w))
        moved = b.permute(split_up, (0, 3, 4, 1, 5, 2))
    else:
        split_up = b.reshape(x, (n, c // (size * size), size, size, h, w))
        moved = b.permute(split_up, (0, 1, 4, 2, 5, 3))
    return b.reshape(moved, (n, c // (size * size), h * size, w * size))


@lowers("SpaceToDepth", attributes=["blocksize"])
def space_to_depth(site: Site) -> Value:
    b, x = site.builder, site.need(0)
    n, c, h, w = x.shape
    size = site.attribute("blocksize", 1)
    facts = Facts(b.origin)
    rows, columns = (facts.divisible(dim, size, "SpaceToDepth") for dim in (h, w))
    b.guards.update(dict.fromkeys(facts.guards))
    split_up = b.reshape(x, (n, c, rows, size, columns, size))
    return b.reshape(b.permute(split_up, (0, 3, 5, 1, 2, 4)), (n, c * size * size, rows, columns))
