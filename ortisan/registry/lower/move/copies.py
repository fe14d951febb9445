"""Concat, Split, Expand, Tile, Pad and Trilu."""

from __future__ import annotations

from ortisan.registry.axes import normalize_axis
from ortisan.registry.builder import known_dims, known_ints
from ortisan.registry.dims import Dim, is_static, product
from ortisan.registry.entries import Result, Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.ops import Concatenate, Expand, Pad, Split, Trilu
from ortisan.registry.ops.move import PadMode
from ortisan.registry.refusal import Refused


@lowers("Concat", since=4, attributes=["axis"])
def concat(site: Site) -> Value:
    parts = [site.need(index) for index in range(len(site.inputs))]
    if not parts:
        raise Refused("Concat of nothing")
    axis = normalize_axis(site.attribute("axis", 0), len(parts[0].shape))
    rests = {(*part.shape[:axis], *part.shape[axis + 1 :]) for part in parts}
    if len(rests) > 1 and any(0 in rest for rest in rests):
        raise Refused("an input has no elements and other dims, which ONNX Runtime skips")
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
    if mode == "wrap" and any(not is_static(width) or width < 0 for width in (*before, *after)):
        raise Refused("Pad mode 'wrap' with a negative width wraps what is left of the axis, which is not supported")
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


@lowers("Trilu", since=14, attributes=["upper"])
def trilu(site: Site) -> Value:
    given = site.optional(1)
    k = 0 if given is None else known_ints(given, "the diagonal of Trilu")[0]
    return site.builder.add(Trilu(bool(site.attribute("upper", 1)), k), site.need(0))
