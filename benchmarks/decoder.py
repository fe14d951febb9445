"""One step of a GPT-2 without its embeddings: a token's hidden state through all layers, the past as inputs.

layer: x = x + Attention(LayerNorm(x), past) W + b;  x = x + Gelu(LayerNorm(x) W + b) W + b      [1,1,hidden]
present_key, present_value = [past; this token], per layer                                         [1,H,past + 1,D]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from benchmarks.models import VitSize, Writer, dense, gelu, model_of, norm

GPT2 = VitSize()
"""GPT-2 small has the layers of ViT-base."""


def decoder(size: VitSize = GPT2) -> ir.Model:
    """x [1, 1, hidden], past_key_I and past_value_I [1, heads, past, hidden / heads] -> y and the present of each."""
    write = Writer()
    x = _float("x", [1, 1, size.hidden])
    inputs, presents, y = [x], [], x
    for index in range(size.layers):
        past = [_float(f"past_{part}_{index}", _cache(size, "past")) for part in ("key", "value")]
        y, *present = _step(write, y, past, f"layer.{index}", size)
        for value, part in zip(present, ("key", "value"), strict=True):
            _name(value, f"present_{part}_{index}", _cache(size, "past + 1"))
        inputs += past
        presents += present
    y = norm(write, y, "norm", size)
    _name(y, "y", [1, 1, size.hidden])
    return model_of(write, inputs, [y, *presents], "decoder")


def weight_bytes(size: VitSize = GPT2) -> int:
    """Of the matrices, which a step reads once."""
    return 4 * size.layers * size.hidden * (4 * size.hidden + 2 * size.intermediate)


def _step(write: Writer, x: ir.Value, past: Sequence[ir.Value], name: str, size: VitSize) -> list[ir.Value]:
    y = dense(write, norm(write, x, f"{name}.norm1", size), f"{name}.attend", size.hidden, 3 * size.hidden)
    cut = write.constant("heads", np.array([1, 1, 3 * size.heads, size.hidden // size.heads]))
    joint = write("Transpose", [write("Reshape", [y, cut])], perm=[0, 2, 1, 3])
    third = [write.constant(f"third_{i}", np.array([i * size.heads])) for i in range(4)]
    axis = write.constant("axis", np.array([1]))
    q, k, v = (write("Slice", [joint, third[i], third[i + 1], axis]) for i in range(3))
    keys, values = (write("Concat", [old, new], axis=2) for old, new in zip(past, (k, v), strict=True))
    scale = write.constant("scale", np.float32(math.sqrt(size.hidden // size.heads)))
    scores = write("Div", [write("MatMul", [q, write("Transpose", [keys], perm=[0, 1, 3, 2])]), scale])
    context = write("MatMul", [write("Softmax", [scores], axis=-1), values])
    joined = write("Reshape", [context, write.constant("joined", np.array([1, 1, size.hidden]))])
    x = write("Add", [dense(write, joined, f"{name}.out", size.hidden, size.hidden), x])
    y = norm(write, x, f"{name}.norm2", size)
    wide = gelu(write, dense(write, y, f"{name}.wide", size.hidden, size.intermediate))
    return [write("Add", [dense(write, wide, f"{name}.narrow", size.intermediate, size.hidden), x]), keys, values]


def _cache(size: VitSize, length: str) -> list[int | str]:
    return [1, size.heads, length, size.hidden // size.heads]


def _float(name: str, shape: Sequence[int | str]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(shape))


def _name(value: ir.Value, name: str, shape: Sequence[int | str]) -> None:
    value.name, value.type, value.shape = name, ir.TensorType(ir.DataType.FLOAT), ir.Shape(shape)
