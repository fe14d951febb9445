"""The models that are timed, each with the inputs it is timed on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
from onnx import numpy_helper

from ortisan.models import BertSize, bert


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    make: Callable[[], Any]
    feeds: Callable[[], dict[str, Any]]
    quick: bool = True
    """Short enough for `--quick`."""


def _tokens(batch: int, sequence: int, vocabulary: int, padded: bool) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, vocabulary, (batch, sequence))
    mask = np.ones_like(ids)
    if padded:
        for row, length in enumerate(np.linspace(sequence // 2, sequence, batch).astype(int)):
            mask[row, length:] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def _parse(signature: str, body: str, constants: dict[str, Any]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 20]> g {signature} {{ {body} }}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


def mlp() -> onnx.ModelProto:
    """64 -> 128 four times -> 10, each hidden layer followed by Gelu and LayerNormalization."""
    rng = np.random.default_rng(0)
    sizes = [64, 128, 128, 128, 128, 10]
    constants, lines, value = {}, [], "x"
    for index, (inner, outer) in enumerate(itertools.pairwise(sizes)):
        constants[f"w{index}"] = (rng.normal(size=(inner, outer)) / inner**0.5).astype(np.float32)
        constants[f"b{index}"] = rng.normal(size=outer).astype(np.float32)
        result = "y" if index == len(sizes) - 2 else f"a{index}"
        lines.append(f"{result} = Gemm({value}, w{index}, b{index})")
        if result != "y":
            constants[f"s{index}"] = rng.uniform(0.5, 1.5, outer).astype(np.float32)
            lines.append(f"g{index} = Gelu({result})")
            lines.append(f"n{index} = LayerNormalization(g{index}, s{index}, b{index})")
            value = f"n{index}"
    return _parse("(float[batch,64] x) => (float[batch,10] y)", "\n".join(lines), constants)


def chain() -> onnx.ModelProto:
    """13 elementwise ops on two vectors."""
    body = """
        a = Add(x, z)  b = Mul(a, x)  c = Sigmoid(b)  d = Mul(c, z)  e = Tanh(d)  f = Sub(e, x)  g = Exp(f)
        h = Add(g, one)  i = Sqrt(h)  j = Div(z, i)  k = Erf(j)  l = Mul(k, half)  y = Add(l, a)"""
    constants = {"one": np.float32(1), "half": np.float32(0.5)}
    return _parse("(float[n] x, float[n] z) => (float[n] y)", body, constants)


def _normal(**shapes: tuple[int, ...]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


_SMALL = BertSize(layers=2, hidden=128, heads=2, intermediate=512, vocabulary=1000)

WORKLOADS = (
    Workload("bert", "BERT-base, batch 1, seq 128", bert, lambda: _tokens(1, 128, 30522, padded=False)),
    Workload(
        "bert_batch", "BERT-base, batch 8, seq 64, padded", bert, lambda: _tokens(8, 64, 30522, True), quick=False
    ),
    Workload(
        "encoder", "2-layer encoder, hidden 128, seq 32", lambda: bert(_SMALL), lambda: _tokens(1, 32, 1000, False)
    ),
    Workload("mlp", "MLP 64-128x4-10, batch 32", mlp, lambda: _normal(x=(32, 64))),
    Workload("chain", "chain of 13 elementwise ops, 1 M floats", chain, lambda: _normal(x=(2**20,), z=(2**20,))),
)


def as_proto(model: Any) -> onnx.ModelProto:
    return ir.to_proto(model) if isinstance(model, ir.Model) else model
