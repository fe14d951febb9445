"""Selections: by indices that are known and in range with AITemplate, which checks none, by others with our kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ortisan.codegen.ait.ait_op import AitOp
from ortisan.codegen.ait.calls import CallWriter
from ortisan.codegen.ait.composer import Composer
from ortisan.codegen.ait.dims import Bounds, range_of
from ortisan.codegen.ait.ops.move import compose_slice
from ortisan.codegen.ait.own import OwnKernel, along_axis, calling, element_of
from ortisan.codegen.ait.rules import Reason, takes_all
from ortisan.registry.dims import Dim, is_static, product, settle
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import Node, Op, Value
from ortisan.registry.ops import DynamicSlice, Gather, GatherNd, IndexSelect
from ortisan.registry.refusal import Refused


def _indices_rule(node: Node, bounds: Bounds) -> Reason:
    x, indices = node.inputs
    if indices.data is None:
        return (
            "AITemplate checks no index: one that is negative or too large would read other memory, "
            "so a gather by indices known at run time stays in ONNX Runtime"
        )
    assert isinstance(node.op, (Gather, IndexSelect))
    try:
        _from_start(indices.data, x.shape[node.op.axis], bounds)
    except Refused as refused:
        return str(refused)
    if isinstance(node.op, Gather) and x.dtype not in (DType.FLOAT16, DType.FLOAT32, DType.INT64):
        return f"AITemplate's gather takes no {x.dtype.value}"
    return "AITemplate's index_select takes no bool" if x.dtype is DType.BOOL else None


def _compose_index_select(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    """One constant index is a slice; several are numbered from the start."""
    assert isinstance(op, IndexSelect)
    x, indices = inputs
    if indices.data is None:
        return [b.add(op, x, indices)]
    dim, axis = x.shape[op.axis], op.axis
    after = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    numbers = indices.data.astype(np.int64).reshape(-1)
    if numbers.size == 1:
        start = settle(dim + int(numbers[0])) if numbers[0] < 0 else int(numbers[0])
        starts = tuple(start if a == axis else 0 for a in range(len(x.shape)))
        sizes = tuple(1 if a == axis else d for a, d in enumerate(x.shape))
        picked = compose_slice(b, DynamicSlice(starts, sizes, (1,) * len(sizes)), (x,))[0]
        return [b.reshape(picked, after)]
    chosen = b.constant(_from_start(numbers, dim, b.bounds), "indices")
    return [b.reshape(b.add(IndexSelect(axis), x, chosen), after)]


def _call_index_select(w: CallWriter, node: Node) -> None:
    op, (x, indices) = node.op, node.inputs
    assert isinstance(op, IndexSelect)
    if op.axis == 0 and len(x.shape) > 1 and all(map(is_static, x.shape)):
        w.add(node, "batch_gather", [w.read(x), w.read(indices)])
    else:
        w.add(node, "index_select", [w.read(x), w.read(indices)], {"dim": op.axis})


def _compose_gather(b: Composer, op: Op, inputs: tuple[Value, ...]) -> Sequence[Value]:
    assert isinstance(op, Gather)
    x, indices = inputs
    if indices.data is not None:
        indices = b.constant(_from_start(indices.data.astype(np.int64), x.shape[op.axis], b.bounds), "indices")
    return [b.add(op, x, indices)]


def _from_start(numbers: Array, dim: Dim, bounds: Bounds) -> Array:
    if not is_static(dim) and (numbers < 0).any():
        raise Refused("AITemplate counts indices from the start, and the dim is known at run time only")
    result = np.where(numbers < 0, numbers + int(dim), numbers) if is_static(dim) else numbers
    if (result >= range_of(dim, bounds)[0]).any() or (result < 0).any():
        raise Refused(f"an index is outside of the dim {dim}, or may be")
    return np.ascontiguousarray(result)


def _call_gather(w: CallWriter, node: Node) -> None:
    op, (x, indices) = node.op, node.inputs
    assert isinstance(op, Gather)
    w.add(node, "gather", [w.read(x), op.axis, w.read(indices)])


def _select_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    op, (x, indices) = node.op, node.inputs
    assert isinstance(op, IndexSelect)
    outer, extent, inner = along_axis(x.shape, op.axis)
    source = calling("gather.cuh", "index_select", element_of(x.dtype), indices.dtype.cpp)
    numbers = (outer, extent, inner, product(indices.shape))
    return OwnKernel("index_select", source, node.inputs, numbers, {"axis": op.axis}, checked=True)


def _gather_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    op, (x, indices) = node.op, node.inputs
    assert isinstance(op, Gather)
    source = calling("gather.cuh", "gather_elements", element_of(x.dtype), indices.dtype.cpp)
    rank = len(x.shape)
    numbers = (product(indices.shape), rank, op.axis, *_padded(x.shape), *_padded(indices.shape))
    return OwnKernel("gather", source, node.inputs, numbers, {"axis": op.axis}, checked=True)


def _gather_nd_kernel(node: Node, bounds: Bounds) -> OwnKernel:
    op, (x, indices) = node.op, node.inputs
    assert isinstance(op, GatherNd)
    source = calling("gather.cuh", "gather_nd", element_of(x.dtype), indices.dtype.cpp)
    skip, depth = op.batch_dims, int(indices.shape[-1])
    count, inner = product(indices.shape[skip:-1]), product(x.shape[skip + depth :])
    numbers = (product(x.shape[:skip]), count, depth, inner, *_padded(x.shape[skip : skip + depth]))
    return OwnKernel("gather_nd", source, node.inputs, numbers, {"batch_dims": skip}, checked=True)


def _padded(dims: Sequence[Dim]) -> tuple[Dim, ...]:
    """As many as a tensor can have."""
    return (*dims, *(1,) * (16 - len(dims)))


OPS = (
    AitOp(Gather, _indices_rule, _compose_gather, _call_gather, takes_all, _gather_kernel),
    AitOp(GatherNd, ours=takes_all, kernel=_gather_nd_kernel),
    AitOp(IndexSelect, _indices_rule, _compose_index_select, _call_index_select, takes_all, _select_kernel),
)
