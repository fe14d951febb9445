"""A decoder in the style of Llama: RMS norms, rotary embeddings, grouped heads and a gated MLP, no biases.

x      = word[ids]                                                                          [B,S,hidden]
layer: x = x + Attention(rotate(RmsNorm(x) W), past) W;  x = x + (Silu(y W) * (y W)) W with y = RmsNorm(x)
logits = RmsNorm(x) W                                                                       [B,S,vocabulary]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ortisan.models.decoder import Decoder

_EPSILON = 1e-6
_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class LlamaSize:
    """The numbers that make a Llama; the defaults are TinyLlama's, of 1.1 billion weights."""

    layers: int = 22
    hidden: int = 2048
    heads: int = 32
    kv_heads: int = 4
    intermediate: int = 5632
    vocabulary: int = 32000
    theta: float = 10000.0

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads


def llama(size: LlamaSize | None = None, *, seed: int = 0) -> ir.Model:
    """A Llama with a cache; its inputs and outputs are those of `Decoder`, with `kv_heads` heads in the cache."""
    size = size or LlamaSize()
    step = Decoder(seed, size.layers, size.kv_heads, size.head_size)
    write = step.write
    x = write("Gather", [write.table("model.embed_tokens.weight", size.vocabulary, size.hidden), step.ids])
    turn = _rotary_tables(step, size)
    for index in range(size.layers):
        x = _layer(step, x, turn, f"model.layers.{index}", size)
    x = _norm(step, x, "model.norm", size)
    return step.model("llama", _dense(step, x, "lm_head", size.hidden, size.vocabulary), size.vocabulary)


def _rotary_tables(step: Decoder, size: LlamaSize) -> tuple[ir.Value, ir.Value]:
    """Cosines and sines of position * frequency, with the frequencies repeated twice: [B,1,S,D]."""
    write, at = step.write, "model.rotary_emb"
    steps = np.arange(0, size.head_size, 2, dtype=np.float32) / np.float32(size.head_size)
    frequencies = write.constant((1 / np.float32(size.theta) ** steps).astype(np.float32))
    column = write("Unsqueeze", [step.positions, write.constant(np.array([2]))], at=at)
    places = write("Cast", [column], {"to": ir.DataType.FLOAT.value}, at=at)
    angles = write("Mul", [places, frequencies], at=at)
    angles = write("Concat", [angles, angles], {"axis": -1}, at=at)
    one = write.constant(np.array([1]))
    cosines, sines = (write("Unsqueeze", [write(op, [angles], at=at), one], at=at) for op in ("Cos", "Sin"))
    return cosines, sines


def _layer(step: Decoder, x: ir.Value, turn: tuple[ir.Value, ir.Value], name: str, size: LlamaSize) -> ir.Value:
    write, at = step.write, f"{name}.self_attn"
    y = _norm(step, x, f"{name}.input_layernorm", size)
    counts = {"q": size.heads, "k": size.kv_heads, "v": size.kv_heads}
    q, k, v = (
        step.heads(_dense(step, y, f"{at}.{part}_proj", size.hidden, count * size.head_size), size.head_size, at)
        for part, count in counts.items()
    )
    q, k = (_rotate(step, part, turn, at, size) for part in (q, k))
    keys, values = (_for_all_heads(step, step.remember(part, at), at, size) for part in (k, v))
    context = step.attend(q, keys, values, size.head_size, at)
    x = write("Add", [x, _dense(step, context, f"{at}.o_proj", size.hidden, size.hidden)], at=name)
    y = _norm(step, x, f"{name}.post_attention_layernorm", size)
    at = f"{name}.mlp"
    gate, up = (_dense(step, y, f"{at}.{part}_proj", size.hidden, size.intermediate) for part in ("gate", "up"))
    open_gate = write("Mul", [gate, write("Sigmoid", [gate], at=at)], at=at)
    wide = write("Mul", [open_gate, up], at=at)
    return write("Add", [x, _dense(step, wide, f"{at}.down_proj", size.intermediate, size.hidden)], at=name)


def _dense(step: Decoder, x: ir.Value, name: str, inner: int, outer: int) -> ir.Value:
    return step.write("MatMul", [x, step.write.matrix(f"{name}.weight", inner, outer)], at=name)


def _norm(step: Decoder, x: ir.Value, name: str, size: LlamaSize) -> ir.Value:
    write = step.write
    weight = write.vector(f"{name}.weight", size.hidden, around=1.0)
    square = write("Pow", [x, write.constant(np.float32(2))], at=name)
    mean = write("ReduceMean", [square, write.constant(np.array([-1]))], {"keepdims": 1}, at=name)
    root = write("Sqrt", [write("Add", [mean, write.constant(np.float32(_EPSILON))], at=name)], at=name)
    normal = write("Mul", [x, write("Reciprocal", [root], at=name)], at=name)
    return write("Mul", [weight, normal], at=name)


def _rotate(step: Decoder, x: ir.Value, turn: tuple[ir.Value, ir.Value], at: str, size: LlamaSize) -> ir.Value:
    write, (cosines, sines) = step.write, turn
    start, middle, end = (write.constant(np.array([place])) for place in (0, size.head_size // 2, _END))
    last = write.constant(np.array([3]))
    low, high = (write("Slice", [x, *part, last], at=at) for part in ((start, middle), (middle, end)))
    swapped = write("Concat", [write("Neg", [high], at=at), low], {"axis": -1}, at=at)
    return write("Add", [write("Mul", [x, cosines], at=at), write("Mul", [swapped, sines], at=at)], at=at)


def _for_all_heads(step: Decoder, x: ir.Value, at: str, size: LlamaSize) -> ir.Value:
    """[B,G,T,D] -> [B,H,T,D]: each head of the cache serves H / G heads of queries."""
    write, each = step.write, size.heads // size.kv_heads
    total = write("Shape", [x], {"start": 2, "end": 3}, at=at)
    column = write("Unsqueeze", [x, write.constant(np.array([2]))], at=at)
    wide = write("Expand", [column, step.dims(step.batch, size.kv_heads, each, total, size.head_size)], at=at)
    return write("Reshape", [wide, step.dims(step.batch, size.heads, total, size.head_size)], at=at)
