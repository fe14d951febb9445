"""Ten small models of several compiled subgraphs each, to put faults into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from ortisan.models import BertSize, Gpt2Size, LlamaSize, bert, gpt2, llama
from tests.models.hostile import hostile_models
from tests.models.mlp import mlp
from tests.models.text import text_model

RNG = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


@dataclass(frozen=True)
class FaultModel:
    """`left` are op types that stay in ONNX Runtime, so that there are several subgraphs; `part` is one to spoil."""

    make: Callable[[], onnx.ModelProto]
    left: tuple[str, ...]
    part: int
    swaps: bool = False
    """Whether the part has two inputs of one type that are not alike."""


def three_parts() -> onnx.ModelProto:
    """Three products with a Softmax that is left out between them, so that there are three subgraphs."""
    body = (
        "a = MatMul(x, v) b = Add(a, bias) c = Tanh(b) d = Softmax(c)"
        "e = MatMul(d, w) f = Sigmoid(e) g = Softmax(f) h = MatMul(g, u) y = Exp(h)"
    )
    constants = {"v": weights(12, 16), "bias": weights(16), "w": weights(16, 24), "u": weights(24, 7)}
    return text_model("(float[batch,12] x) => (float[batch,7] y)", body, constants=constants)


def two_inputs() -> onnx.ModelProto:
    body = "a = MatMul(x, v) b = Mul(z, two) y = Sub(a, b)"
    constants = {"v": weights(8, 8), "two": np.float32(2)}
    return text_model("(float[batch,8] x, float[batch,8] z) => (float[batch,8] y)", body, constants=constants)


def _gates() -> onnx.ModelProto:
    body = "a = Exp(x) b = Sub(a, z) c = Softmax(b) d = Mul(c, x) e = Sub(z, d) f = Softmax(e) y = Log(f)"
    return text_model("(float[batch,8] x, float[batch,8] z) => (float[batch,8] y)", body)


def _images() -> onnx.ModelProto:
    body = """a = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w) b = Sigmoid(a) c = Mul(a, b)
        d = Conv<kernel_shape = [1, 1]>(c, v) e = Tanh(d) y = ReduceMean<axes = [2, 3], keepdims = 0>(e)"""
    constants = {"w": weights(4, 3, 3, 3), "v": weights(5, 4, 1, 1)}
    return text_model("(float[batch,3,6,6] x) => (float[batch,5] y)", body, constants=constants)


def _recurrent() -> onnx.ModelProto:
    body = """t = Transpose<perm = [1, 0, 2]>(x) p = MatMul(t, m) q = Tanh(p) o, h, c = LSTM<hidden_size = 5>(q, w, r)
        s = Squeeze(o, one) u = MatMul(s, n) y = Sigmoid(u)"""
    constants = {"m": weights(4, 6), "w": weights(1, 20, 6), "r": weights(1, 20, 5), "n": weights(5, 3)}
    constants["one"] = np.array([1])
    return text_model("(float[batch,time,4] x) => (float[time,batch,3] y)", body, constants=constants)


def _rows() -> onnx.ModelProto:
    body = """a = ReduceMean<axes = [1]>(x) b = Sub(x, a) c = CumSum(b, one) d = Softmax(c) e = Mul(d, x)
        y = ReduceSum<keepdims = 0>(e, last)"""
    constants = {"one": np.array(1), "last": np.array([1])}
    return text_model("(float[batch,9] x) => (float[batch] y)", body, constants=constants)


def _proto(model: ir.Model) -> onnx.ModelProto:
    return ir.to_proto(model)


MODELS: Mapping[str, FaultModel] = {
    "three parts": FaultModel(three_parts, ("Softmax",), 1),
    "gates": FaultModel(_gates, ("Softmax",), 0, swaps=True),
    "perceptron": FaultModel(lambda: mlp(sizes=(8, 12, 10, 4)), ("Relu",), 1),
    "images": FaultModel(_images, ("Conv",), 0),
    "recurrent": FaultModel(_recurrent, ("LSTM",), 1),
    "rows": FaultModel(_rows, ("Softmax",), 0),
    "block": FaultModel(lambda: hostile_models()["block"], ("Attention",), 1),
    "bert": FaultModel(lambda: _proto(bert(BertSize(1, 16, 2, 24, 31, 16))), ("Softmax",), 1, swaps=True),
    "gpt2": FaultModel(lambda: _proto(gpt2(Gpt2Size(1, 12, 2, 31, 16))), ("Softmax",), 1, swaps=True),
    "llama": FaultModel(
        lambda: _proto(llama(LlamaSize(layers=1, hidden=16, heads=4, kv_heads=2, intermediate=20, vocabulary=31))),
        ("Softmax",),
        1,
        swaps=True,
    ),
}
