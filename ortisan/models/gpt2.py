"""GPT-2 with its cache as inputs and outputs.

x      = word[ids] + position[position_ids]                                                 [B,S,hidden]
layer: x = x + Attention(LayerNorm(x) W + b, past) W + b;  x = x + Gelu(LayerNorm(x) W + b) W + b
logits = LayerNorm(x) word'                                                                 [B,S,vocabulary]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ortisan.models.decoder import Decoder

_EPSILON = 1e-5


@dataclass(frozen=True)
class Gpt2Size:
    """The numbers that make a GPT-2; the defaults are the small one, of 124 million weights."""

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    vocabulary: int = 50257
    positions: int = 1024

    @property
    def intermediate(self) -> int:
        return 4 * self.hidden

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads


def gpt2(size: Gpt2Size | None = None, *, seed: int = 0) -> ir.Model:
    """A GPT-2 with a cache; its inputs and outputs are those of `Decoder`."""
    size = size or Gpt2Size()
    step = Decoder(seed, size.layers, size.heads, size.head_size)
    write = step.write
    words = write.matrix("transformer.wte.weight", size.hidden, size.vocabulary, transposed=True)
    places = write.table("transformer.wpe.weight", size.positions, size.hidden)
    x = write("Add", [write("Gather", [words, step.ids]), write("Gather", [places, step.positions])])
    for index in range(size.layers):
        x = _layer(step, x, f"transformer.h.{index}", size)
    x = _norm(step, x, "transformer.ln_f", size)
    logits = write("MatMul", [x, write("Transpose", [words], {"perm": [1, 0]}, at="lm_head")], at="lm_head")
    return step.model("gpt2", logits, size.vocabulary)


def _layer(step: Decoder, x: ir.Value, name: str, size: Gpt2Size) -> ir.Value:
    write, at = step.write, f"{name}.attn"
    joint = _dense(step, _norm(step, x, f"{name}.ln_1", size), f"{at}.c_attn", size.hidden, 3 * size.hidden)
    thirds = write.several("Split", [joint], 3, {"axis": 2, "num_outputs": 3}, at=at)
    q, k, v = (step.heads(third, size.head_size, at) for third in thirds)
    context = step.attend(q, step.remember(k, at), step.remember(v, at), size.head_size, at)
    x = write("Add", [_dense(step, context, f"{at}.c_proj", size.hidden, size.hidden), x], at=name)
    wide = _dense(step, _norm(step, x, f"{name}.ln_2", size), f"{name}.mlp.c_fc", size.hidden, size.intermediate)
    wide = _gelu(step, wide, f"{name}.mlp.act")
    return write("Add", [x, _dense(step, wide, f"{name}.mlp.c_proj", size.intermediate, size.hidden)], at=name)


def _dense(step: Decoder, x: ir.Value, name: str, inner: int, outer: int) -> ir.Value:
    """x W + b on the rows of x, between two Reshapes."""
    write = step.write
    weight, bias = write.matrix(f"{name}.weight", inner, outer), write.vector(f"{name}.bias", outer)
    rows = write("Reshape", [x, write.constant(np.array([-1, inner]))], at=name)
    shape = step.dims(step.batch, step.sequence, outer)
    return write("Reshape", [write("Gemm", [rows, weight, bias], at=name), shape], at=name)


def _norm(step: Decoder, x: ir.Value, name: str, size: Gpt2Size) -> ir.Value:
    write = step.write
    scale, shift = write.vector(f"{name}.weight", size.hidden, around=1.0), write.vector(f"{name}.bias", size.hidden)
    return write("LayerNormalization", [x, scale, shift], {"axis": -1, "epsilon": _EPSILON}, at=name)


def _gelu(step: Decoder, x: ir.Value, at: str) -> ir.Value:
    """The approximation with tanh, written out."""
    write = step.write
    half = write("Mul", [x, write.constant(np.float32(0.5))], at=at)
    cube = write("Pow", [x, write.constant(np.float32(3))], at=at)
    inner = write("Add", [x, write("Mul", [cube, write.constant(np.float32(0.044715))], at=at)], at=at)
    scaled = write("Mul", [inner, write.constant(np.float32(0.79788458))], at=at)
    gate = write("Add", [write("Tanh", [scaled], at=at), write.constant(np.float32(1))], at=at)
    return write("Mul", [half, gate], at=at)
