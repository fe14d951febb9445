"""What kernels of ours compute, in numpy: kind -> function of the attributes and the inputs, which gives the outputs.

Floats come in as float64. Dims among the attributes are texts, which `number` evaluates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ortisan.codegen.ait.worker.memory import numpy_dtype
from ortisan.codegen.ait.worker.scalars import CHAIN_FUNCTIONS
from ortisan.codegen.ait.worker.strided_meanings import attention, join_rows, rotary, view

Array = Any
OwnMeaning = Callable[[dict[str, Any], list[Array], Callable[[Any], int]], list[Array]]


def _index_select(attributes: dict[str, Any], inputs: list[Array], number: Callable[[Any], int]) -> list[Array]:
    x, indices = inputs
    axis = attributes["axis"]
    wrapped, inside = _wrapped(indices, x.shape[axis])
    picked = np.take(x, wrapped, axis=axis)
    keep = inside.reshape(*(1,) * axis, *inside.shape, *(1,) * (x.ndim - axis - 1))
    return [np.where(keep, picked, np.zeros((), x.dtype))]


def _gather(attributes: dict[str, Any], inputs: list[Array], number: Callable[[Any], int]) -> list[Array]:
    x, indices = inputs
    axis = attributes["axis"]
    wrapped, inside = _wrapped(indices, x.shape[axis])
    if x.size == 0:
        return [np.zeros(indices.shape, x.dtype)]
    window = tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(indices.shape))
    return [np.where(inside, np.take_along_axis(x[window], wrapped, axis=axis), np.zeros((), x.dtype))]


def _gather_nd(attributes: dict[str, Any], inputs: list[Array], number: Callable[[Any], int]) -> list[Array]:
    x, indices = inputs
    skip, depth = attributes["batch_dims"], indices.shape[-1]
    pairs = [_wrapped(indices[..., i], x.shape[skip + i]) for i in range(depth)]
    grids = np.meshgrid(*(np.arange(n) for n in indices.shape[:-1]), indexing="ij", sparse=True)
    inside = np.logical_and.reduce([inside for _, inside in pairs])
    coordinates = (*grids[:skip], *(wrapped for wrapped, _ in pairs))
    picked = x[coordinates]
    keep = inside.reshape(*inside.shape, *(1,) * (x.ndim - skip - depth))
    return [np.where(keep, picked, np.zeros((), x.dtype))]


def _wrapped(indices: Array, size: int) -> tuple[Array, Array]:
    """Indices from the start, 0 for those out of range, and which are in range."""
    wrapped = np.where(indices < 0, indices + size, indices)
    inside = (wrapped >= 0) & (wrapped < size)
    return np.where(inside, wrapped, 0), inside


def _rms_norm(attributes: dict[str, Any], inputs: list[Array], number: Callable[[Any], int]) -> list[Array]:
    x, axis = inputs[0], attributes["axis"]
    squares = (x * x).mean(axis=tuple(range(axis, x.ndim)), keepdims=True)
    y = x / np.sqrt(squares + attributes["epsilon"])
    return [y * inputs[1].reshape(x.shape[axis:]) if len(inputs) > 1 else y]


def _softmax(attributes: dict[str, Any], inputs: list[Array], number: Callable[[Any], int]) -> list[Array]:
    (x,), axis = inputs, attributes["axis"]
    if x.size == 0:
        return [x]
    shifted = x - x.max(axis=axis, keepdims=True)
    total = np.exp(shifted).sum(axis=axis, keepdims=True)
    return [shifted - np.log(total) if attributes["log"] else np.exp(shifted) / total]


def _group_norm(attributes: dict[str, Any], inputs: list[Array], number: Callable[[Any], int]) -> list[Array]:
    x, gamma, beta = inputs
    groups = number(attributes["groups"])
    parts = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    shifted = parts - parts.mean(axis=(1, 3), keepdims=True)
    deviation = np.sqrt((shifted**2).mean(axis=(1, 3), keepdims=True) + attributes["epsilon"])
    return [(shifted / deviation).reshape(x.shape) * gamma + beta]


def _cache_write(attributes: dict[str, Any], inputs: list[Array], number: Callable[[Any], int]) -> list[Array]:
    past, _, *starts = inputs
    update = view(attributes["update"], inputs, number)
    axis, length, start = attributes["axis"], number(attributes["length"]), number(attributes["start"])
    old, new = np.moveaxis(past, axis, 1), np.moveaxis(update, axis, 1)
    out = np.zeros((old.shape[0], length, *old.shape[2:]), past.dtype)
    out[:, : old.shape[1]] = old
    for batch in range(old.shape[0]):
        first = start + (int(starts[0][batch]) if starts else 0)
        for i in range(new.shape[1]):
            row = (first + i) % length if attributes["circular"] else first + i
            if 0 <= row < length:
                out[batch, row] = new[batch, i]
    return [np.moveaxis(out, 1, axis)]


_REDUCTIONS: dict[str, Callable[..., Array]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": lambda x, **w: np.max(x, initial=-np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min, **w),
    "min": lambda x, **w: np.min(x, initial=np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max, **w),
    "any": np.any,
    "all": np.all,
    "l1": lambda x, **w: np.sum(np.abs(x), **w),
    "l2": lambda x, **w: np.sqrt(np.sum(x * x, **w)),
    "sum_square": lambda x, **w: np.sum(x * x, **w),
    "log_sum": lambda x, **w: np.log(np.sum(x, **w)),
}


def _reduce(attributes: dict[str, Any], inputs: list[Array], number: Callable[[Any], int]) -> list[Array]:
    (x,), axes, kind = inputs, tuple(attributes["axes"]), attributes["kind"]
    if kind != "mean":
        return [_REDUCTIONS[kind](x, axis=axes, keepdims=attributes["keepdim"]).astype(x.dtype)]
    total = np.sum(x, axis=axes, keepdims=attributes["keepdim"])
    count = max(1, int(np.prod([x.shape[axis] for axis in axes])))
    return [total / count if x.dtype.kind == "f" else (total - np.fmod(total, count)) // count]


def _arg_reduce(attributes: dict[str, Any], inputs: list[Array], number: Callable[[Any], int]) -> list[Array]:
    (x,), axis = inputs, attributes["axis"]
    pick = np.argmax if attributes["kind"] == "max" else np.argmin
    if attributes["last"]:
        place = x.shape[axis] - 1 - pick(np.flip(x, axis), axis=axis, keepdims=True)
    else:
        place = pick(x, axis=axis, keepdims=True)
    return [place if attributes["keepdim"] else place.squeeze(axis)]


def _cumsum(attributes: dict[str, Any], inputs: list[Array], number: Callable[[Any], int]) -> list[Array]:
    (x,), axis = inputs, attributes["axis"]
    turned = np.flip(x, axis) if attributes["reverse"] else x
    total = np.cumsum(turned, axis=axis) - (turned if attributes["exclusive"] else 0)
    return [np.flip(total, axis) if attributes["reverse"] else total]


def _chain(attributes: dict[str, Any], inputs: list[Array], number: Callable[[Any], int]) -> list[Array]:
    """y[i] = f(a[offset + strides * i], ..): the loop's operands, numbers, and functions of those before."""
    shape = tuple(number(dim) for dim in attributes["shape"])
    values = [_element(leaf, inputs, shape, number) for leaf in attributes["leaves"]]
    values += [np.asarray(item["number"]).astype(item["dtype"]) for item in attributes["literals"]]
    for step in attributes["steps"]:
        operands = [values[index] for index in step["operands"]]
        if "cast" in step:
            values.append(_cast(operands[0], step["cast"]))
        else:
            wide = [_wide(x) for x in operands]
            kind = operands[-1].dtype
            result = np.asarray(CHAIN_FUNCTIONS[step["function"]](*wide, *step["params"]))
            values.append(result if result.dtype == np.bool_ else result.astype(kind))
    return [np.broadcast_to(values[index], shape) for index in attributes["results"]]


def _wide(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def _cast(x: Array, to: str) -> Array:
    return x != 0 if to == "bool" else x.astype(numpy_dtype(to))


def _element(leaf: dict[str, Any], inputs: list[Array], shape: tuple[int, ...], number: Callable[[Any], int]) -> Array:
    at = np.full(shape, number(leaf["offset"]), np.int64)
    for axis, stride in enumerate(leaf["strides"]):
        at += np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))]) * number(stride)
    return at if leaf["operand"] is None else inputs[leaf["operand"]].reshape(-1)[at]


OWN_MEANINGS: dict[str, OwnMeaning] = {
    "arg_reduce": _arg_reduce,
    "attention": attention,
    "cache_write": _cache_write,
    "chain": _chain,
    "cumsum": _cumsum,
    "gather": _gather,
    "gather_nd": _gather_nd,
    "group_norm": _group_norm,
    "index_select": _index_select,
    "join_rows": join_rows,
    "reduce": _reduce,
    "rms_norm": _rms_norm,
    "rotary": rotary,
    "softmax": _softmax,
}
