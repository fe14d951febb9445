"""A BERT encoder with a pooler, in the form that torch's older exporter writes.

x      = LayerNorm(word[ids] + type[token_type_ids] + position[0:S])                        [B,S,hidden]
layer: x = LayerNorm(x + Attention(x, mask) W + b);  x = LayerNorm(x + Gelu(x W + b) W + b)
pooled = Tanh(x[:, 0] W + b)                                                                [B,hidden]
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ortisan.models.writer import HIDDEN_LOGIT, Writer

_OPSET = 17
_IR_VERSION = 8
_EPSILON = 1e-12


@dataclass(frozen=True)
class BertSize:
    """The numbers that make a BERT encoder; the defaults are BERT-base."""

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    intermediate: int = 3072
    vocabulary: int = 30522
    positions: int = 512
    token_types: int = 2


def bert(size: BertSize | None = None, *, seed: int = 0) -> ir.Model:
    """A BERT encoder with a pooler: input_ids, attention_mask and token_type_ids [batch, sequence] of int64."""
    size = size or BertSize()
    write = Writer(seed)
    inputs = [write.input(name, ["batch", "sequence"]) for name in ("input_ids", "attention_mask", "token_type_ids")]
    ids, mask, types = inputs
    x = _embed(write, ids, types, size)
    bias = _mask_bias(write, mask)
    for index in range(size.layers):
        x = _layer(write, x, bias, f"encoder.layer.{index}", size)
    first = write("Gather", [x, write.constant(np.int64(0))], {"axis": 1}, at="pooler")
    weight = write.matrix("pooler.dense.weight", size.hidden, size.hidden, transposed=True)
    pooled = write("Gemm", [first, weight, write.vector("pooler.dense.bias", size.hidden)], {"transB": 1}, at="pooler")
    outputs = [x, write("Tanh", [pooled], at="pooler")]
    write.declare(outputs[0], "last_hidden_state", ["batch", "sequence", size.hidden])
    write.declare(outputs[1], "pooler_output", ["batch", size.hidden])
    return write.model("bert", inputs, outputs, opset=_OPSET, ir_version=_IR_VERSION)


def _size_of(write: Writer, value: ir.Value, axis: int, at: str) -> ir.Value:
    """One dim of a value, as a vector of one element."""
    dims = write("Shape", [value], at=at)
    dim = write("Gather", [dims, write.constant(np.int64(axis))], {"axis": 0}, at=at)
    return write("Unsqueeze", [dim, write.constant(np.array([0]))], at=at)


def _embed(write: Writer, ids: ir.Value, types: ir.Value, size: BertSize) -> ir.Value:
    at = "embeddings"
    zero, one = write.constant(np.array([0])), write.constant(np.array([1]))
    numbers = write.constant(np.arange(size.positions)[None])
    positions = write("Slice", [numbers, zero, _size_of(write, ids, 1, at), one, one], at=at)
    words = write(
        "Gather", [write.table("embeddings.word_embeddings.weight", size.vocabulary, size.hidden), ids], at=at
    )
    kind = write.table("embeddings.token_type_embeddings.weight", size.token_types, size.hidden)
    place = write.table("embeddings.position_embeddings.weight", size.positions, size.hidden)
    x = write("Add", [words, write("Gather", [kind, types], at=at)], at=at)
    x = write("Add", [x, write("Gather", [place, positions], at=at)], at=at)
    return _norm(write, x, "embeddings.LayerNorm", size)


def _mask_bias(write: Writer, mask: ir.Value) -> ir.Value:
    """0 where a key is seen, the lowest number where it is not: [batch, 1, 1, sequence]."""
    rows = write("Unsqueeze", [mask, write.constant(np.array([1]))])
    keys = write("Unsqueeze", [rows, write.constant(np.array([2]))])
    seen = write("Cast", [keys], {"to": ir.DataType.FLOAT.value})
    hidden = write("Sub", [write.constant(np.float32(1)), seen])
    return write("Mul", [hidden, write.constant(np.float32(HIDDEN_LOGIT))])


def _layer(write: Writer, x: ir.Value, bias: ir.Value, name: str, size: BertSize) -> ir.Value:
    inside = f"{name}.attention.self"
    q, k, v = (
        _heads(write, x, f"{inside}.{part}", size, transposed=part == "key") for part in ("query", "key", "value")
    )
    scale = write.constant(np.float32(math.sqrt(size.hidden // size.heads)))
    scores = write("Div", [write("MatMul", [q, k], at=inside), scale], at=inside)
    weights = write("Softmax", [write("Add", [scores, bias], at=inside)], {"axis": -1}, at=inside)
    context = write("MatMul", [weights, v], at=inside)
    context = write("Transpose", [context], {"perm": [0, 2, 1, 3]}, at=inside)
    dims = [
        _size_of(write, context, 0, inside),
        _size_of(write, context, 1, inside),
        write.constant(np.array([size.hidden])),
    ]
    joined = write("Reshape", [context, write("Concat", dims, {"axis": 0}, at=inside)], at=inside)
    x = _norm(
        write,
        write("Add", [_dense(write, joined, f"{name}.attention.output.dense", size.hidden, size.hidden), x], at=name),
        f"{name}.attention.output.LayerNorm",
        size,
    )
    wide = _dense(write, x, f"{name}.intermediate.dense", size.hidden, size.intermediate)
    narrow = _dense(
        write, _gelu(write, wide, f"{name}.intermediate"), f"{name}.output.dense", size.intermediate, size.hidden
    )
    return _norm(write, write("Add", [narrow, x], at=name), f"{name}.output.LayerNorm", size)


def _dense(write: Writer, x: ir.Value, name: str, inner: int, outer: int) -> ir.Value:
    product = write("MatMul", [x, write.matrix(f"{name}.weight", inner, outer)], at=name)
    return write("Add", [write.vector(f"{name}.bias", outer), product], at=name)


def _heads(write: Writer, x: ir.Value, name: str, size: BertSize, *, transposed: bool) -> ir.Value:
    """A projection of x, split into heads: [B,H,S,D], or [B,H,D,S] if transposed."""
    flat = _dense(write, x, name, size.hidden, size.hidden)
    shape = [_size_of(write, flat, 0, name), _size_of(write, flat, 1, name)]
    shape += [write.constant(np.array([size.heads])), write.constant(np.array([size.hidden // size.heads]))]
    view = write("Reshape", [flat, write("Concat", shape, {"axis": 0}, at=name)], at=name)
    return write("Transpose", [view], {"perm": [0, 2, 3, 1] if transposed else [0, 2, 1, 3]}, at=name)


def _norm(write: Writer, x: ir.Value, name: str, size: BertSize) -> ir.Value:
    scale, shift = write.vector(f"{name}.weight", size.hidden, around=1.0), write.vector(f"{name}.bias", size.hidden)
    return write("LayerNormalization", [x, scale, shift], {"axis": -1, "epsilon": _EPSILON}, at=name)


def _gelu(write: Writer, x: ir.Value, at: str) -> ir.Value:
    error = write("Erf", [write("Div", [x, write.constant(np.float32(math.sqrt(2.0)))], at=at)], at=at)
    double = write("Mul", [x, write("Add", [error, write.constant(np.float32(1))], at=at)], at=at)
    return write("Mul", [double, write.constant(np.float32(0.5))], at=at)
