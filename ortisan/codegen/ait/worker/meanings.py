"""What AITemplate's ops compute, in numpy: op -> function of the op and its inputs, which gives the outputs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ortisan.codegen.ait.worker.scalars import EPILOGUES, FUNCTIONS

Array = Any
Meaning = Callable[[Any, list[Array], Any], list[Array]]

_PRODUCT = re.compile(r"(?:gemm|bmm)_([rc])([rc])[rc](.*)")
_STEPS = re.compile(r"_(bias|add|mul|fast_gelu|relu|gelu|sigmoid|tanh|swish|hardswish|identity|n1|small_nk)")
_SPECIAL = ("identity", "n1", "small_nk")
"""An epilogue that does nothing, and kernels for narrow products, which compute the same."""


def meaning_of(name: str) -> Meaning:
    if name in MEANINGS:
        return MEANINGS[name]
    if _PRODUCT.fullmatch(name):
        return _product
    if name.startswith("conv2d"):
        return _conv2d
    raise NotImplementedError(f"the interpreter does not know AITemplate's {name}")


def _product(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    """A product by its layout letters and, step by step, what its name says comes after."""
    match = _PRODUCT.fullmatch(op._attrs["op"])
    assert match is not None
    left, right, rest = match.groups()
    a, b, *others = inputs
    a = np.swapaxes(a, -1, -2) if left == "c" else a
    b = np.swapaxes(b, -1, -2) if right == "c" else b
    y = np.matmul(a, b)
    return [_finished(op, y, rest, others)]


def _finished(op: Any, y: Array, rest: str, others: list[Array]) -> Array:
    steps = _STEPS.findall(rest)
    if "".join(f"_{step}" for step in steps) != rest:
        raise NotImplementedError(f"the interpreter does not know AITemplate's {op._attrs['op']}")
    for step in steps:
        if step in ("bias", "add"):
            y = y + others.pop(0)
        elif step == "mul":
            y = y * others.pop(0)
        elif step not in _SPECIAL:
            y = EPILOGUES[step](y)
    return y


def _conv2d(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    """x [N,H,W,C] with w [O,Kh,Kw,C / group], and what the name says comes after."""
    x, w, *others = inputs
    strides, pads, dilations = (_two(op._attrs[key]) for key in ("stride", "pad", "dilate"))
    x = np.pad(x, ((0, 0), (pads[0], pads[0]), (pads[1], pads[1]), (0, 0)))
    _, rows, columns, filters = shape_of(op._attrs["outputs"][0])
    y = np.zeros((x.shape[0], rows, columns, filters))
    depthwise = w.shape[3] == 1 and x.shape[3] > 1
    for i in range(w.shape[1]):
        for j in range(w.shape[2]):
            top, left = i * dilations[0], j * dilations[1]
            part = x[:, top : top + rows * strides[0] : strides[0], left : left + columns * strides[1] : strides[1]]
            part = part[:, :rows, :columns]
            y += part * w[:, i, j, 0] if depthwise else part @ w[:, i, j].T
    return [_finished(op, y, re.sub(r"conv2d(_depthwise)?", "", op._attrs["op"]), others)]


def _two(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _pool2d(kind: str) -> Meaning:
    def pool(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
        size, stride, pad = (op._attrs[key] for key in ("kernel_size", "stride", "pad"))
        fill = -np.inf if kind == "max" else 0.0
        x = np.pad(inputs[0], ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=fill)
        rows, columns = ((x.shape[axis] - size) // stride + 1 for axis in (1, 2))
        windows = [
            x[:, i : i + rows * stride : stride, j : j + columns * stride : stride][:, :rows, :columns]
            for i in range(size)
            for j in range(size)
        ]
        return [np.max(windows, axis=0) if kind == "max" else np.sum(windows, axis=0) / size**2]

    return pool


def _elementwise(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    left = iter(inputs)
    args = [arg._attrs["value"] if arg.is_a_const_num() else next(left) for arg in op._attrs["args"]]
    return [FUNCTIONS[op._attrs["func"].name](*args)]


def _fused_elementwise(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    values = {tensor._attrs["name"]: x for tensor, x in zip(op._attrs["original_inputs"], inputs, strict=True)}
    for inner in op._attrs["elementwise_ops"]:
        args = [
            arg._attrs["value"] if arg.is_a_const_num() else values[arg._attrs["name"]] for arg in inner._attrs["args"]
        ]
        values[inner._attrs["outputs"][0]._attrs["name"]] = FUNCTIONS[inner._attrs["func"].name](*args)
    made = [values[tensor._attrs["name"]] for tensor in op._attrs["original_outputs"]]
    shapes = [shape_of(tensor) for tensor in op._attrs["original_outputs"]]
    return [np.broadcast_to(x, shape) for x, shape in zip(made, shapes, strict=True)]


def _softmax(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    (x,), axis = inputs, op._attrs["dim"]
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return [e / e.sum(axis=axis, keepdims=True)]


def _layernorm(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    x, *affine = inputs
    return [_normalised(op, x, len(op._attrs["normalized_shape"]), affine)]


def _group_layernorm(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    """Several at once: all tensors, then all scales, then all shifts."""
    count = len(op._attrs["normalized_shape"])
    ranks = [len(shape) for shape in op._attrs["normalized_shape"]]
    return [_normalised(op, inputs[i], rank, inputs[i + count :: count]) for i, rank in enumerate(ranks)]


def _normalised(op: Any, x: Array, rank: int, affine: list[Array]) -> Array:
    axes, left = tuple(range(x.ndim - rank, x.ndim)), iter(affine)
    mean = x.mean(axis=axes, keepdims=True)
    y = (x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + op._attrs["eps"])
    if op._attrs["gamma_constant"] is None:
        y = y * next(left)
    return y + next(left) if op._attrs["beta_constant"] is None else y


def _reduce(function: Callable[..., Array]) -> Meaning:
    def reduce(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
        axes = tuple(op._attrs["reduction_axes"])
        return [function(inputs[0], axis=axes, keepdims=op._attrs["keepdim"])]

    return reduce


def _permute(*order: int) -> Meaning:
    """The last axes in this order, or in the op's own."""

    def permute(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
        (x,) = inputs
        last = order or op._attrs["dims"]
        skip = x.ndim - len(last)
        return [np.transpose(x, [*range(skip), *(skip + axis for axis in last)])]

    return permute


def _concatenate(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    return [np.concatenate(inputs, axis=op._attrs["concat_dim"])]


def _split(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    ends = np.cumsum(op._attrs["split_sizes"])[:-1]
    return list(np.split(inputs[0], ends, axis=op._attrs["split_dim"]))


def _dynamic_slice(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    ends = zip(op._attrs["start_indices"], op._attrs["end_indices"], strict=True)
    return [inputs[0][tuple(slice(start, end) for start, end in ends)]]


def _pad_last_dim(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    (x,) = inputs
    widths = [(0, 0)] * (x.ndim - 1) + [(0, op._attrs["out_dim"] - x.shape[-1])]
    return [np.pad(x, widths)]


def _same(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    return [inputs[0]]


def _expand(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    return [np.broadcast_to(inputs[0], shape_of(op._attrs["outputs"][0]))]


def _batch_gather(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    x, indices = inputs
    if indices.ndim != 1:
        raise NotImplementedError("the interpreter knows batch_gather by a vector of indices only")
    return [x[indices]]


def _index_select(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    return [np.take(inputs[0], inputs[1], axis=op._attrs["dim"])]


def _gather(op: Any, inputs: list[Array], shape_of: Any) -> list[Array]:
    x, indices = inputs
    axis = op._attrs["gather_dim"]
    window = tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(indices.shape))
    return [np.take_along_axis(x[window], indices, axis=axis)]


MEANINGS: dict[str, Meaning] = {
    "avg_pool2d": _pool2d("mean"),
    "batch_gather": _batch_gather,
    "cast": _same,
    "concatenate": _concatenate,
    "dynamic_slice": _dynamic_slice,
    "elementwise": _elementwise,
    "expand": _expand,
    "fused_elementwise": _fused_elementwise,
    "gather": _gather,
    "group_layernorm": _group_layernorm,
    "index_select": _index_select,
    "layernorm": _layernorm,
    "max_pool2d": _pool2d("max"),
    "pad_last_dim": _pad_last_dim,
    "permute": _permute(),
    "permute021": _permute(1, 0),
    "permute0213": _permute(0, 2, 1, 3),
    "permute102": _permute(1, 0, 2),
    "permute210": _permute(2, 1, 0),
    "reduce_max": _reduce(np.max),
    "reduce_mean": _reduce(np.mean),
    "reduce_min": _reduce(np.min),
    "reduce_sum": _reduce(np.sum),
    "softmax": _softmax,
    "split": _split,
}
