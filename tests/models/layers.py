"""Two dense layers with a Softmax between them."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models.text import text_model


def two_layers() -> onnx.ModelProto:
    """Without its Softmax the model falls into two subgraphs."""
    rng = np.random.default_rng(0)
    constants = {
        "w0": rng.normal(size=(16, 40)).astype(np.float32) / 4,
        "b0": rng.normal(size=40).astype(np.float32),
        "w1": rng.normal(size=(40, 8)).astype(np.float32) / 6,
    }
    body = "a = MatMul(x, w0) c = Add(a, b0) d = Relu(c) s = Softmax(d) y = MatMul(s, w1)"
    return text_model("(float[batch,seq,16] x) => (float[batch,seq,8] y)", body, constants=constants)
