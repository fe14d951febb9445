"""Small modules that the tests compile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tests.tolerances import APPROXIMATE

WIDTH = 8


class Net(nn.Module):
    """A linear layer, with options that make it return more."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, 6)
        self.register_buffer("offset", torch.ones(6))

    def forward(self, x: Any) -> Any:
        return torch.relu(self.linear(x)) + self.offset


class Broken(nn.Module):
    """Control flow that depends on data: two graphs, with a break between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.first(x))
        if y.sum() > 0:
            y = y + 1
        return self.second(y)


@dataclass
class Result:
    value: Any
    more: Any


class Nested(nn.Module):
    """Keyword arguments, structures in and out, results that are arguments, numbers or nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, 6)

    def forward(self, x: Any, *, scale: Any = None, pair: Any = None) -> Any:
        y = self.linear(x)
        if scale is not None:
            y = y * scale
        if pair is not None:
            y = y + pair[0] + pair[1]["bias"]
        return Result(y, {"x": x, "sums": [y.sum(1), None, 3], "rows": y.shape[0]})


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, WIDTH)
        self.lstm = nn.LSTM(WIDTH, 12, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, ids: Any) -> Any:
        states, (hidden, _) = self.lstm(self.embedding(ids))
        return self.head(states), hidden


def close(a: Any, b: Any, tolerance: float = APPROXIMATE) -> None:
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


_TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 53,
    "max_position_embeddings": 32,
}


def transformer(kind: str, config: str, **settings: Any) -> Any:
    """A model of transformers with wide random weights, so that errors show."""
    import transformers

    torch.manual_seed(0)
    model = getattr(transformers, kind)(getattr(transformers, config)(**settings)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 or "bias" in name:
                parameter.normal_(0, 0.2)
    return model


def bert() -> Any:
    return transformer("BertModel", "BertConfig", **_TEXT)


def llama() -> Any:
    return transformer("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=1, **_TEXT)


def gpt2() -> Any:
    sizes = {"vocab_size": 53, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 32}
    return transformer("GPT2LMHeadModel", "GPT2Config", bos_token_id=0, eos_token_id=0, **sizes)


def resnet() -> Any:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    return transformer("ResNetModel", "ResNetConfig", layer_type="basic", **sizes)


def text(batch: int = 2, length: int = 7) -> dict[str, Any]:
    mask = torch.ones((batch, length), dtype=torch.int64)
    mask[-1, length - 2 :] = 0
    return {"input_ids": torch.randint(1, 53, (batch, length)), "attention_mask": mask}


GREEDY = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
