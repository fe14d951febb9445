"""What our kernels that read through strides compute, in numpy: of views of their inputs, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
Number = Callable[[Any], int]


def attention(attributes: dict[str, Any], inputs: list[Array], number: Number) -> list[Array]:
    q = view(attributes["q"], inputs, number)
    k, v = (np.concatenate([view(part, inputs, number) for part in attributes[key]], 2) for key in ("keys", "values"))
    repeats = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, repeats, axis=1) for x in (k, v))
    weights = _weights(attributes, np.matmul(q, np.swapaxes(k, -1, -2)), inputs, number)
    y = np.matmul(weights, v) if k.shape[2] else np.zeros((*q.shape[:3], v.shape[3]))
    return [y.transpose(0, 2, 1, 3) if attributes["rows_first"] else y]


def view(part: dict[str, Any], inputs: list[Array], number: Number) -> Array:
    memory = np.ascontiguousarray(inputs[part["source"]]).reshape(-1)[number(part["offset"]) :]
    shape = [number(dim) for dim in part["shape"]]
    strides = [memory.itemsize * number(stride) for stride in part["strides"]]
    return np.lib.stride_tricks.as_strided(memory, shape, strides, writeable=False)


def _weights(attributes: dict[str, Any], products: Array, inputs: list[Array], number: Number) -> Array:
    logits, cap = products * attributes["scale"], attributes["softcap"]
    if cap:
        logits = cap * np.tanh(logits / cap)
    if attributes["mask"] == "additive":
        logits = (logits + view(attributes["bias"], inputs, number)).astype(attributes["dtype"]).astype(np.float64)
    elif attributes["mask"] == "boolean":
        logits = np.where(view(attributes["bias"], inputs, number), logits, float(attributes["hidden"]))
    queries, keys = logits.shape[-2:]
    if attributes["causal"] != "none":
        ahead = keys - queries if attributes["causal"] == "lower_right" else 0
        logits = np.where(np.tri(queries, keys, ahead, dtype=bool), logits, -np.inf)
    if keys == 0:
        return logits
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    if attributes["empty_rows_zero"]:
        weights = np.where(np.isneginf(logits).all(axis=-1, keepdims=True), 0.0, weights)
    if attributes["nan_rows_zero"]:
        weights = np.where(np.isnan(weights).any(axis=-1, keepdims=True), 0.0, weights)
    return weights


def rotary(attributes: dict[str, Any], inputs: list[Array], number: Number) -> list[Array]:
    x, cos, sin = (view(attributes[key], inputs, number) for key in ("x", "cos", "sin"))
    size = attributes["size"]
    half = size // 2
    if cos.shape[-1] == half:
        cos, sin = (np.concatenate([table, table], axis=-1) for table in (cos, sin))
    pairs = (slice(0, size, 2), slice(1, size, 2)), (slice(0, half), slice(half, size))
    first, second = pairs[0] if attributes["interleaved"] else pairs[1]
    y = x.copy()
    y[..., first] = x[..., first] * cos[..., :half] - x[..., second] * sin[..., :half]
    y[..., second] = x[..., second] * cos[..., half:] + x[..., first] * sin[..., half:]
    return [y]


def join_rows(attributes: dict[str, Any], inputs: list[Array], number: Number) -> list[Array]:
    return [np.concatenate([view(part, inputs, number) for part in attributes["parts"]], 2)]
