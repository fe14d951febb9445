"""RotaryEmbedding, of ONNX and of com.microsoft. The tables have a column for each pair of elements that is rotated."""

from __future__ import annotations

from ortisan.registry.builder import Builder
from ortisan.registry.dtypes import DType
from ortisan.registry.entries import CONTRIB_DOMAIN, PRIVATE_DOMAIN, Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.lower.attention.heads import head_size, merge_heads, require_equal, split_heads
from ortisan.registry.ops import Arange, IndexSelect, Rotary
from ortisan.registry.refusal import Refused


def rotate(b: Builder, x: Value, tables: tuple[Value, Value], positions: Value | None, interleaved: bool) -> Value:
    """x[B,H,S,D] turned by the rows of the tables at positions [B,S], or by tables [B,S,R/2]."""
    size = 2 * head_size(tables[0], "the cosine table")
    if size > head_size(x, "the rotated tensor"):
        raise Refused(f"the tables {tables[0].type} are wider than half the head size of {x.type}")
    rows = [b.add(IndexSelect(0), table, positions) if positions is not None else table for table in tables]
    wide = [b.reshape(table, (table.shape[0], 1, *table.shape[1:])) for table in rows]
    return b.add(Rotary(size, interleaved), x, *wide)


@lowers("RotaryEmbedding", since=23, attributes=["interleaved", "num_heads", "rotary_embedding_dim"])
def rotary_embedding(site: Site) -> Value:
    return _rotary(site, site.need(1), site.need(2), site.optional(3))


_CONTRIB = ("interleaved", "is_packed_batching", "num_heads", "rotary_embedding_dim", "scale")


@lowers("RotaryEmbedding", attributes=_CONTRIB, domain=CONTRIB_DOMAIN)
def contrib_rotary_embedding(site: Site) -> Value:
    if site.attribute("is_packed_batching", 0):
        raise Refused("a packed batch (is_packed_batching) is not supported")
    if site.attribute("scale", 1.0) != 1.0:
        raise Refused("scale is not supported; the kernel of ONNX Runtime ignores it")
    b, x, positions = site.builder, site.need(0), site.need(1)
    if len(positions.shape) < 2:
        # One number: the position of the first element of every sequence.
        require_equal(b, positions.type.elements, 1, "the number of position_ids and 1")
        length = x.shape[1 if len(x.shape) == 3 else 2]
        first = b.reshape(positions, (1, 1))
        steps = b.reshape(b.add(Arange(0, 1, length, DType.INT64)), (1, length))
        positions = b.elementwise("ADD", b.cast(first, DType.INT64), steps)
    return _rotary(site, site.need(2), site.need(3), positions)


def _rotary(site: Site, cos: Value, sin: Value, positions: Value | None) -> Value:
    b, x = site.builder, site.need(0)
    if len(cos.shape) != (2 if positions is not None else 3) or cos.shape != sin.shape:
        raise Refused(f"the tables {cos.type} and {sin.type} don't fit position_ids that are {_presence(positions)}")
    whole = len(x.shape) == 3
    if whole:
        width = 2 * head_size(cos, "the cosine table")
        heads = site.attribute("num_heads", 0) or head_size(x, "the rotated tensor") // max(width, 1)
        x = split_heads(b, x, heads, "the rotated tensor")
    if len(x.shape) != 4:
        raise Refused(f"{x.type} has neither 3 nor 4 dims")
    asked = site.attribute("rotary_embedding_dim", 0) or head_size(x, "the rotated tensor")
    if asked != 2 * head_size(cos, "the cosine table"):
        raise Refused(f"the tables {cos.type} are not half as wide as the {asked} elements to rotate")
    y = rotate(b, x, (cos, sin), positions, bool(site.attribute("interleaved", 0)))
    return merge_heads(b, y) if whole else y


def _presence(positions: Value | None) -> str:
    return "absent" if positions is None else "given"


@lowers("RotaryEmbedding", attributes=["size", "interleaved"], domain=PRIVATE_DOMAIN)
def private_rotary(site: Site) -> Value:
    op = Rotary(site.attribute("size", 0), bool(site.attribute("interleaved", 0)))
    return site.builder.add(op, *(site.need(index) for index in range(3)))
