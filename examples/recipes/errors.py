"""Frequent errors, each one sentence, and what to do about it."""

from collections.abc import Callable

import torch
from torch import nn

import ortisan.torch
from ortisan.errors import OrtisanError

x = torch.randn(4, 16)


class Branch(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1  # -> torch.cond, or torch.compile, which breaks the graph here


class InPlace(nn.Module):
    def forward(self, x):
        return x.add_(1) * 2  # -> x = x.clone() first, or torch.compile


class Holder:
    def __init__(self) -> None:
        self.held = x  # -> a dataclass, or torch.utils._pytree.register_pytree_node


class Takes(nn.Module):
    def forward(self, x, holder):
        return x + holder.held


class Draws(nn.Module):
    def forward(self, x):
        return torch.multinomial(x.softmax(-1), 1) + 1  # -> draw outside of the graph


def wrapped(module: nn.Module, **options) -> Callable:
    return ortisan.torch.compile(module.eval(), **options)


CASES: dict[str, Callable] = {
    "control flow on data": lambda: wrapped(Branch())(x),
    "an input changed in place": lambda: wrapped(InPlace())(x),
    "an object that holds tensors": lambda: wrapped(Takes())(x, Holder()),
    "random numbers": lambda: torch.compile(Draws(), backend="ortisan", options={"strict": True})(x),
    "a size out of bounds": lambda: wrapped(nn.ReLU(), dynamic={"input": {0: "rows"}}, dims={"rows": (1, 3)})(x),
    "an option that is not there": lambda: wrapped(nn.ReLU(), fast=True),
}
for name, case in CASES.items():
    try:
        case()
        raise AssertionError(f"{name} is no error")
    except OrtisanError as error:
        print(f"{name}: {error}")
