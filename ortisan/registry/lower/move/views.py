"""Other shapes and orders of the same elements: Reshape, Squeeze, Transpose, DepthToSpace and their kin."""

from __future__ import annotations

from ortisan.registry.axes import normalize_axis, read_axes
from ortisan.registry.builder import known_dims, known_ints
from ortisan.registry.dims import Dim, Facts, is_static, product
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.refusal import Refused


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
            raise Refused(f"Squeeze without axes of {x.type}: which dims are 1 is only known at run time")
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
