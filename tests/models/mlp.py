"""A multi-layer perceptron."""

from __future__ import annotations

import itertools

import numpy as np
import onnx

from tests.models.text import text_model


def mlp(*, sizes: tuple[int, ...] = (16, 32, 8), opset: int = 17, seed: int = 0) -> onnx.ModelProto:
    """Gemm and Relu per layer, dynamic batch; the last layer has no Relu."""
    rng = np.random.default_rng(seed)
    constants, lines, value = {}, [], "x"
    for index, (inner, outer) in enumerate(itertools.pairwise(sizes)):
        constants[f"w{index}"] = (rng.normal(size=(outer, inner)) / np.sqrt(inner)).astype(np.float32)
        constants[f"b{index}"] = rng.normal(size=outer).astype(np.float32)
        last = index == len(sizes) - 2
        result = "y" if last else f"g{index}"
        lines.append(f"{result} = Gemm<transB = 1>({value}, w{index}, b{index})")
        if not last:
            value = f"r{index}"
            lines.append(f"{value} = Relu({result})")
    signature = f"(float[batch,{sizes[0]}] x) => (float[batch,{sizes[-1]}] y)"
    return text_model(signature, "\n".join(lines), opset=opset, constants=constants)
