"""Quantized models: a BERT and a small ResNet with random weights, quantized by ONNX Runtime's own tools."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

from ortisan.models import BertSize, bert
from tests.models.text import random_feeds, text_model


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, model: onnx.ModelProto, **sizes: int) -> None:
        self._feeds: Iterator[dict[str, np.ndarray]] = iter(
            [random_feeds(model, seed=seed, **sizes) for seed in range(3)]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def small_bert(layers: int = 2) -> onnx.ModelProto:
    return ir.to_proto(bert(BertSize(layers, 32, 4, 48, 61, 24)))


def small_resnet(blocks: int = 2, *, width: int = 8) -> onnx.ModelProto:
    """A stem, residual blocks and a classifier."""
    rng = np.random.default_rng(0)
    constants: dict[str, np.ndarray] = {}

    def conv(name: str, outputs: int, inputs: int, size: int) -> str:
        constants[f"w{name}"] = (rng.standard_normal((outputs, inputs, size, size)) / size / np.sqrt(inputs)).astype(
            np.float32
        )
        constants[f"b{name}"] = rng.standard_normal(outputs).astype(np.float32) / 4
        pads = [size // 2] * 4
        return f"Conv<kernel_shape = {[size, size]}, pads = {pads}>"

    lines = [f"s = {conv('s', width, 3, 3)}(x, ws, bs) r0 = Relu(s)"]
    for index in range(blocks):
        a, b = f"{index}a", f"{index}b"
        lines.append(
            f"c{a} = {conv(a, width, width, 3)}(r{index}, w{a}, b{a}) d{a} = Relu(c{a}) "
            f"c{b} = {conv(b, width, width, 3)}(d{a}, w{b}, b{b}) e{b} = Add(c{b}, r{index}) r{index + 1} = Relu(e{b})"
        )
    constants["wf"] = (rng.standard_normal((width, 10)) / np.sqrt(width)).astype(np.float32)
    constants["bf"] = rng.standard_normal(10).astype(np.float32)
    lines.append(f"p = GlobalAveragePool(r{blocks}) f = Flatten(p) l = Gemm(f, wf, bf) y = Softmax(l)")
    return text_model("(float[batch,3,12,12] x) => (float[batch,10] y)", " ".join(lines), constants=constants)


def dynamic(model: onnx.ModelProto) -> onnx.ModelProto:
    """Weights of products are int8, activations are quantized as they come."""
    with _files(model) as (source, result):
        quantize_dynamic(source, result, weight_type=QuantType.QInt8)
        return onnx.load(result)


def pairs(model: onnx.ModelProto, **sizes: int) -> onnx.ModelProto:
    """Pairs of QuantizeLinear and DequantizeLinear with scales of some samples."""
    with _files(model) as (source, result):
        reader = _Samples(model, **sizes)
        quantize_static(source, result, reader, quant_format=QuantFormat.QDQ, weight_type=QuantType.QInt8)
        return onnx.load(result)


@contextmanager
def _files(model: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    logging.getLogger().setLevel(logging.ERROR)  # the tools advise to preprocess, on the root logger
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source.onnx"
        onnx.save(model, source)
        yield str(source), str(Path(folder) / "quantized.onnx")
