"""Attention heads and key masks, as all attention ops of ONNX and of ONNX Runtime need them."""

from __future__ import annotations

import numpy as np

from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, Facts, is_static, product, settle
from ortisan.registry.dtypes import DType
from ortisan.registry.entries import Site
from ortisan.registry.graph import Value
from ortisan.registry.ops import Arange, Concatenate, Permute, Reshape
from ortisan.registry.refusal import Refused

_SWAP = (0, 2, 1, 3)


def split_heads(b: Builder, x: Value, heads: int, what: str) -> Value:
    """[B,S,H*D] -> [B,H,S,D]."""
    if len(x.shape) != 3:
        raise Refused(f"{what} {x.type} does not have 3 dims")
    hidden = x.shape[2]
    if heads <= 0 or not is_static(hidden) or hidden % heads:
        raise Refused(f"{what} {x.type} does not divide into {heads} heads")
    return _merged_from(b, x, heads) or b.permute(b.reshape(x, (*x.shape[:2], heads, hidden // heads)), _SWAP)


def merge_heads(b: Builder, x: Value) -> Value:
    """[B,H,S,D] -> [B,S,H*D]."""
    batch, heads, length, size = x.shape
    return b.reshape(b.permute(x, _SWAP), (batch, length, product((heads, size))))


def _merged_from(b: Builder, x: Value, heads: int) -> Value | None:
    """Undoes `merge_heads`: the value x was made from, if it had this many heads."""
    node = b.producer(x)
    inner = b.producer(node.inputs[0]) if node is not None and isinstance(node.op, Reshape) else None
    if inner is None or not isinstance(inner.op, Permute) or inner.op.order != _SWAP:
        return None
    source = inner.inputs[0]
    same = source.shape[1] == heads and source.shape[0] == x.shape[0] and source.shape[2] == x.shape[1]
    return source if same else None


def refuse_logits(site: Site) -> None:
    """Refuses the optional output of query-key products that all attention ops have."""
    if any(site.used[3:]):
        raise Refused("its query-key output is used, which the kernel never materializes")


def head_size(x: Value, what: str) -> int:
    size = x.shape[-1]
    if not is_static(size):
        raise Refused(f"the head size of {what} {x.type} is only known at run time")
    return int(size)


def require_equal(b: Builder, have: Dim, need: Dim, what: str) -> None:
    """Requires equal dims, by a run-time guard if that is not known yet."""
    facts = Facts(b.origin)
    facts.equal(have, need, what)
    b.guards.update(dict.fromkeys(facts.guards))


def extend(b: Builder, past: Value | None, new: Value) -> Value:
    """[B,H,P,D] before [B,H,L,D]."""
    return new if past is None else b.add(Concatenate(2), past, new)


def key_positions(b: Builder, keys: Dim) -> Value:
    """0 .. T-1 as [1,1,1,T]."""
    return b.reshape(b.add(Arange(0, 1, keys, DType.INT64)), (1, 1, 1, keys))


def query_positions(b: Builder, queries: Dim, first: Dim | Value, shift: int = 0) -> Value:
    """first + shift, and so on by ones, as [B or 1,1,S,1]; `first` is a dim or one number per batch."""
    start = shift if isinstance(first, Value) else settle(first + shift)
    steps = b.reshape(b.add(Arange(start, 1, queries, DType.INT64)), (1, 1, queries, 1))
    return b.elementwise("ADD", steps, per_batch(b, first)) if isinstance(first, Value) else steps


def per_batch(b: Builder, numbers: Value) -> Value:
    """[B] -> int64 [B,1,1,1]."""
    return b.reshape(b.cast(numbers, DType.INT64), (*numbers.shape, 1, 1, 1))


def dim_value(b: Builder, dim: Dim) -> Value:
    """A dim as an int64 scalar."""
    dims = np.empty((), dtype=object)
    dims[()] = settle(dim)
    return b.from_dims(dims, DType.INT64)


def both(b: Builder, *masks: Value | None) -> Value | None:
    """The intersection of boolean masks; None sees everything."""
    result: Value | None = None
    for mask in masks:
        result = mask if result is None else result if mask is None else b.elementwise("AND", result, mask)
    return result
