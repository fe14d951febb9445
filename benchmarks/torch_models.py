"""The workloads as a torch user writes them, on the weights of the ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from ortisan.models import BertSize

_EPSILON = 1e-12
_MLP_EPSILON = 1e-5

Weights: TypeAlias = "Mapping[str, Any]"


class _Net(nn.Module):
    """Holds the weights; matrices that ONNX multiplies from the right are kept as `F.linear` wants them."""

    def __init__(self, weights: Weights, right: Callable[[str], bool]) -> None:
        super().__init__()
        for name, array in weights.items():
            turned = array.T if array.ndim == 2 and right(name) else array
            tensor = torch.from_numpy(np.array(turned, order="C"))
            self.register_parameter(_key(name), nn.Parameter(tensor, requires_grad=False))

    def at(self, name: str) -> Any:
        return getattr(self, _key(name))

    def dense(self, x: Any, name: str) -> Any:
        return F.linear(x, self.at(f"{name}.weight"), self.at(f"{name}.bias"))

    def norm(self, x: Any, name: str) -> Any:
        return F.layer_norm(x, x.shape[-1:], self.at(f"{name}.weight"), self.at(f"{name}.bias"), _EPSILON)

    def attend(self, x: Any, names: tuple[str, str, str], heads: int, bias: Any = None) -> Any:
        q, k, v = (self.dense(x, name).unflatten(-1, (heads, -1)).transpose(1, 2) for name in names)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)


def _key(name: str) -> str:
    return name.replace(".", "_")


def _floats(weights: Weights) -> dict[str, Any]:
    return {name: array for name, array in weights.items() if array.dtype == np.float32 and array.ndim}


class Bert(_Net):
    def __init__(self, weights: Weights, layers: int, heads: int) -> None:
        super().__init__(_floats(weights), lambda name: "embeddings" not in name and "pooler" not in name)
        self.layers, self.heads = layers, heads

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> tuple[Any, Any]:
        x = F.embedding(input_ids, self.at("embeddings.word_embeddings.weight"))
        x = x + F.embedding(token_type_ids, self.at("embeddings.token_type_embeddings.weight"))
        x = x + self.at("embeddings.position_embeddings.weight")[: input_ids.shape[1]]
        x = self.norm(x, "embeddings.LayerNorm")
        bias = (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for index in range(self.layers):
            at = f"encoder.layer.{index}"
            q, k, v = (f"{at}.attention.self.{part}" for part in ("query", "key", "value"))
            y = self.dense(self.attend(x, (q, k, v), self.heads, bias), f"{at}.attention.output.dense")
            x = self.norm(y + x, f"{at}.attention.output.LayerNorm")
            y = self.dense(F.gelu(self.dense(x, f"{at}.intermediate.dense")), f"{at}.output.dense")
            x = self.norm(y + x, f"{at}.output.LayerNorm")
        return x, torch.tanh(self.dense(x[:, 0], "pooler.dense"))


class Vit(_Net):
    def __init__(self, weights: Weights, layers: int, heads: int) -> None:
        super().__init__(_floats(weights), lambda name: not name.startswith("head."))
        self.layers, self.heads = layers, heads

    def forward(self, pixel_values: Any) -> tuple[Any]:
        kernel = self.at("patch.weight")
        x = F.conv2d(pixel_values, kernel, self.at("patch.bias"), stride=kernel.shape[-1])
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([self.at("class_token").expand(x.shape[0], -1, -1), x], 1) + self.at("position")
        for index in range(self.layers):
            at = f"layer.{index}"
            y = self.attend(self.norm(x, f"{at}.norm1"), (f"{at}.query", f"{at}.key", f"{at}.value"), self.heads)
            x = self.dense(y, f"{at}.out") + x
            y = F.gelu(self.dense(self.norm(x, f"{at}.norm2"), f"{at}.wide"))
            x = self.dense(y, f"{at}.narrow") + x
        return (self.dense(self.norm(x, "norm")[:, 0], "head"),)


class Decoder(nn.Module):
    """A model of transformers, with its cache as arguments and results."""

    def __init__(self, model: nn.Module, weights: Weights) -> None:
        super().__init__()
        for name, parameter in model.named_parameters():
            array = weights[name]
            turned = array if array.shape == tuple(parameter.shape) and not _is_linear(name) else array.T
            parameter.data = torch.from_numpy(np.array(turned, order="C"))
        self.model = model.requires_grad_(False).eval()

    def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, **past: Any) -> tuple[Any, ...]:
        cache = DynamicCache()
        for index in range(len(past) // 2):
            key, value = (past[f"past_key_values.{index}.{part}"] for part in ("key", "value"))
            cache.update(key, value, index)
        found = self.model(
            input_ids, attention_mask=attention_mask, position_ids=position_ids, past_key_values=cache, use_cache=True
        )
        return (found.logits, *(part for layer in cache.layers for part in (layer.keys, layer.values)))


def _is_linear(name: str) -> bool:
    """Whether torch keeps a matrix the other way round; GPT-2's own layers don't."""
    return name.endswith(("_proj.weight", "lm_head.weight")) and not name.startswith("transformer.")


def _gpt2(weights: Weights) -> nn.Module:
    vocabulary, hidden = weights["transformer.wte.weight"].shape
    sizes = {"n_embd": hidden, "n_layer": _layers(weights), "n_head": hidden // HEAD_SIZE, "vocab_size": vocabulary}
    positions = weights["transformer.wpe.weight"].shape[0]
    config = GPT2Config(**sizes, n_positions=positions, bos_token_id=0, eos_token_id=0)
    return Decoder(GPT2LMHeadModel(config), weights)


def _llama(weights: Weights) -> nn.Module:
    vocabulary, hidden = weights["model.embed_tokens.weight"].shape
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=weights["model.layers.0.mlp.up_proj.weight"].shape[1],
        num_hidden_layers=_layers(weights),
        num_attention_heads=hidden // HEAD_SIZE,
        num_key_value_heads=weights["model.layers.0.self_attn.k_proj.weight"].shape[1] // HEAD_SIZE,
    )
    return Decoder(LlamaForCausalLM(config), weights)


def _layers(weights: Weights) -> int:
    ends = (".out.weight", "attention.output.dense.weight", "mlp.c_proj.weight", "mlp.down_proj.weight")
    return sum(key.endswith(ends) for key in weights)


class Mlp(_Net):
    def __init__(self, weights: Weights) -> None:
        super().__init__(_floats(weights), lambda name: True)

    def forward(self, x: Any) -> tuple[Any]:
        for index in range(4):
            x = F.gelu(F.linear(x, self.at(f"w{index}"), self.at(f"b{index}")))
            x = F.layer_norm(x, x.shape[-1:], self.at(f"s{index}"), self.at(f"b{index}"), _MLP_EPSILON)
        return (F.linear(x, self.at("w4"), self.at("b4")),)


class Chain(nn.Module):
    def forward(self, x: Any, z: Any) -> tuple[Any]:
        a = x + z
        e = torch.tanh(torch.sigmoid(a * x) * z)
        i = torch.sqrt(torch.exp(e - x) + 1.0)
        return (torch.erf(z / i) * 0.5 + a,)


def module_of(weights: Weights) -> nn.Module:
    """The module that computes what the ONNX model with these weights computes; arguments are the inputs by name."""
    if "transformer.wte.weight" in weights:
        return _gpt2(weights)
    if "lm_head.weight" in weights:
        return _llama(weights)
    if "w0" in weights:
        return Mlp(weights)
    if "norm.weight" in weights:
        return Vit(weights, _layers(weights), weights["norm.weight"].shape[0] // HEAD_SIZE)
    if "pooler.dense.weight" in weights:
        return Bert(weights, _layers(weights), weights["embeddings.LayerNorm.weight"].shape[0] // HEAD_SIZE)
    return Chain()


HEAD_SIZE = BertSize().hidden // BertSize().heads
"""Of every transformer among the workloads."""
