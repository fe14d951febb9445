"""Exports models of transformers. Needs torch and transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoModelForCausalLM, DynamicCache


class Encoder(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Any, mask: Any) -> Any:
        return self.model(ids, attention_mask=mask)[0]


class Decoder(Encoder):
    """Keys and values come and go as tensors."""

    def forward(self, ids: Any, mask: Any, positions: Any, *pasts: Any) -> Any:
        cache = DynamicCache()
        for layer in range(len(pasts) // 2):
            cache.update(pasts[2 * layer], pasts[2 * layer + 1], layer)
        logits = self.model(ids, attention_mask=mask, position_ids=positions, past_key_values=cache).logits
        return logits, *(tensor for layer in cache.layers for tensor in (layer.keys, layer.values))


def export(name: str, path: Path, *, decoder: bool) -> Path:
    """Writes a model of transformers as ONNX: an encoder, or a decoder with its cache as inputs and outputs."""
    model = (AutoModelForCausalLM if decoder else AutoModel).from_pretrained(name, dtype=torch.float32).eval()
    ids = torch.ones((2, 3), dtype=torch.int64)
    inputs, outputs = ["input_ids", "attention_mask"], ["last_hidden_state"]
    axes = {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "sequence"}}
    arguments: list[Any] = [ids, torch.ones_like(ids)]
    if decoder:
        config = model.config
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        caches = [f"{layer}.{part}" for layer in range(config.num_hidden_layers) for part in ("key", "value")]
        arguments = [ids, torch.ones((2, 8), dtype=torch.int64), torch.tensor([[5, 6, 7]] * 2)]
        arguments += [torch.zeros((2, heads, 5, size)) for _ in caches]
        inputs += ["position_ids", *(f"past_key_values.{cache}" for cache in caches)]
        outputs = ["logits", *(f"present.{cache}" for cache in caches)]
        axes |= {"position_ids": axes["input_ids"], "attention_mask": {0: "batch", 1: "total"}}
        axes |= {f"past_key_values.{cache}": {0: "batch", 2: "past"} for cache in caches}
        axes |= {f"present.{cache}": {0: "batch", 2: "total"} for cache in caches}

    with torch.no_grad():
        torch.onnx.export(
            (Decoder if decoder else Encoder)(model), tuple(arguments), path, dynamo=False, opset_version=17,
            input_names=inputs, output_names=outputs, dynamic_axes=axes,
        )  # fmt: skip
    return path
