"""Small decoders with a cache, as torch exports them. Needs torch and transformers.

Inputs are input_ids, attention_mask and position_ids, then a key and a value per layer, all with dynamic lengths.
Weights are drawn wider than a trained model's, so that an error in any of them shows.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from tests.models.bert import _quiet

LAYERS, HEAD_SIZE, VOCABULARY, POSITIONS = 2, 8, 61, 64
KV_HEADS = {"gpt2": 4, "llama": 2}
PAST = tuple(f"past_key_values.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value"))
PRESENT = tuple(f"present.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value"))
INPUTS = ("input_ids", "attention_mask", "position_ids", *PAST)
OUTPUTS = ("logits", *PRESENT)

Array = npt.NDArray[np.generic]


@functools.cache
def decoder_dynamo(kind: str, *, opset: int = 20) -> onnx.ModelProto:
    """The export of torch's current exporter: the mask's length is a symbol of its own."""
    import torch

    model, arguments = _torch_decoder(kind)
    batch, seq, past, total = (torch.export.Dim(name) for name in ("batch", "seq", "past", "total"))
    shapes = ({0: batch, 1: seq}, {0: batch, 1: total}, {0: batch, 1: seq}, [{0: batch, 2: past} for _ in PAST])
    with _quiet():
        program = torch.onnx.export(
            model,
            arguments,
            dynamo=True,
            opset_version=opset,
            dynamic_shapes=shapes,
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            verbose=False,
        )
    return program.model_proto


@functools.cache
def decoder_legacy(kind: str, *, total: str = "total", opset: int = 17) -> onnx.ModelProto:
    """The export of torch's older exporter; `total` names the length of the mask and of the grown cache."""
    import torch

    model, arguments = _torch_decoder(kind)
    axes = {name: {0: "batch", 1: "seq"} for name in ("input_ids", "position_ids", "logits")}
    axes["attention_mask"] = {0: "batch", 1: total}
    axes |= {name: {0: "batch", 2: "past"} for name in PAST} | {name: {0: "batch", 2: total} for name in PRESENT}
    buffer = io.BytesIO()
    with _quiet():
        torch.onnx.export(
            model,
            arguments,
            buffer,
            dynamo=False,
            opset_version=opset,
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            dynamic_axes=axes,
        )
    return onnx.load_from_string(buffer.getvalue())


def empty_cache(kind: str, batch: int, length: int = 0, fill: float = 0) -> dict[str, Array]:
    """One array for each input of the cache."""
    shape = (batch, KV_HEADS[kind], length, HEAD_SIZE)
    return {name: np.full(shape, fill, np.float32) for name in PAST}


def steps(batch: int, lengths: Sequence[int], padding: str = "none") -> list[Mapping[str, Array]]:
    """Inputs of a growing sequence but for the cache. Padding hides positions of the first step: "left" or "right"."""
    rng = np.random.default_rng(batch)
    mask, made = np.zeros((batch, 0), np.int64), []
    for length in lengths:
        seen = np.ones((batch, length), np.int64)
        if not made and padding != "none":
            for row in range(1, batch):
                hidden = min(row, length - 1)
                seen[row, :hidden] = padding != "left"
                seen[row, length - hidden :] = padding != "right"
        mask = np.concatenate([mask, seen], axis=1)
        positions = np.maximum(mask.cumsum(axis=1) - 1, 0)[:, -length:]
        ids = rng.integers(0, VOCABULARY, (batch, length))
        made.append({"input_ids": ids, "attention_mask": mask, "position_ids": positions})
    return made


def _torch_decoder(kind: str) -> tuple[Any, Any]:
    import torch

    torch.manual_seed(0)
    model = _gpt2() if kind == "gpt2" else _llama()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 and name.endswith("weight"):
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 0.1 if parameter.ndim == 1 else 0.2)
    ids, mask, positions = (
        torch.zeros((2, 3), dtype=torch.int64),
        torch.ones((2, 8), dtype=torch.int64),
        torch.arange(3),
    )
    past = [torch.zeros((2, KV_HEADS[kind], 5, HEAD_SIZE)) for _ in PAST]
    return _with_flat_cache(model), (ids, mask, positions.expand(2, 3).clone(), past)


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    size = {"n_layer": LAYERS, "n_embd": 32, "n_head": 4, "n_inner": 48, "vocab_size": VOCABULARY}
    return GPT2LMHeadModel(GPT2Config(**size, n_positions=POSITIONS, bos_token_id=0, eos_token_id=0)).eval()


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = {"num_attention_heads": 4, "num_key_value_heads": KV_HEADS["llama"]}
    size = {"num_hidden_layers": LAYERS, "hidden_size": 32, "intermediate_size": 48, "vocab_size": VOCABULARY}
    return LlamaForCausalLM(LlamaConfig(**size, **heads, max_position_embeddings=POSITIONS)).eval()


def _with_flat_cache(model: Any) -> Any:
    import torch
    from transformers.cache_utils import DynamicCache, DynamicLayer

    class FlatCache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, past: Any) -> Any:
            cache = DynamicCache()
            for key, value in zip(past[::2], past[1::2], strict=True):
                layer = DynamicLayer()
                layer.lazy_initialization(key, value)
                layer.keys, layer.values = key, value
                cache.layers.append(layer)
            result = self.model(
                input_ids, attention_mask=attention_mask, position_ids=position_ids, past_key_values=cache
            )
            grown = [tensor for layer in result.past_key_values.layers for tensor in (layer.keys, layer.values)]
            return result.logits, *grown

    return FlatCache().eval()
