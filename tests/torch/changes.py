"""Ways to change a module between two calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

WIDTH = 8


class Part(nn.Module):
    """Something of everything that a module may hold."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.table = nn.Embedding(5, WIDTH)
        self.register_buffer("offset", torch.linspace(0, 1, WIDTH))
        self.plain = torch.linspace(1, 2, WIDTH)
        self.more = {"scales": [torch.ones(WIDTH)], "gain": 1.5}
        self.steps = 2
        self.drop = nn.Dropout(0.0)

    def forward(self, x: Any) -> Any:
        y = self.drop(self.linear(x)) + self.offset + self.table.weight[:3].sum(0)
        for _ in range(self.steps):
            y = y * self.plain + self.more["scales"][0] * self.more["gain"]
        return y if not self.training else y + 1


def raw(tensor: Any, scale: float) -> None:
    """Writes the memory behind torch's back."""
    memory = (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())
    for index in range(len(memory)):
        memory[index] *= scale


def low_rank(part: Any) -> None:
    a, b = torch.randn(2, WIDTH), torch.randn(WIDTH, 2)
    part.linear.weight.data += b @ a


def optimize(part: Any, kind: Any, **settings: Any) -> None:
    optimizer = kind(part.parameters(), lr=0.1, **settings)
    with torch.enable_grad():
        Part.forward(part, torch.ones(3, WIDTH)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def average(part: Any) -> None:
    for each in part.parameters():
        each.data.mul_(0.5).add_(torch.ones_like(each), alpha=0.5)


def same_address(part: Any) -> None:
    part.half()
    part.float()


def swap_rows(part: Any) -> None:
    part.linear.weight.data[[0, 1]] = part.linear.weight.data[[1, 0]]


def turn(part: Any) -> None:
    part.linear.weight.data = part.linear.weight.data.t()


def tie(part: Any) -> None:
    part.linear.weight.data[:5] = part.table.weight.data
    part.table.weight.data = part.linear.weight.data[:5]


def hook(part: Any) -> None:
    part.linear.register_forward_hook(lambda module, args, result: result * 2)


def hook_of_the_root(part: Any) -> None:
    part.register_forward_hook(lambda module, args, result: result * 2)


def hook_added_or_removed(part: Any) -> None:
    handle = part.__dict__.pop("handle", None)
    if handle is None:
        part.__dict__["handle"] = part.linear.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    else:
        handle.remove()


class Adapted(nn.Module):
    """A layer with a low-rank change that is kept apart from its weight."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base, self.a, self.b = base, nn.Parameter(torch.randn(WIDTH, 2)), nn.Parameter(torch.randn(2, WIDTH))

    @property
    def weight(self) -> Any:
        return self.base.weight

    def forward(self, x: Any) -> Any:
        return self.base(x) + x @ self.a @ self.b


def adapter_added_or_removed(part: Any) -> None:
    part.linear = part.linear.base if isinstance(part.linear, Adapted) else Adapted(part.linear)


def adapter_trained(part: Any) -> None:
    if not isinstance(part.linear, Adapted):
        part.linear = Adapted(part.linear)
    optimize(part, torch.optim.SGD)


def moving_average(part: Any) -> None:
    averaged = torch.optim.swa_utils.AveragedModel(part, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    averaged.update_parameters(part)
    low_rank(part)
    averaged.update_parameters(part)
    part.load_state_dict(averaged.module.state_dict())


def same_parameter(part: Any) -> None:
    part.table = nn.Embedding(WIDTH, WIDTH)
    part.table.weight = part.linear.weight


def from_a_vector(part: Any) -> None:
    vector = nn.utils.parameters_to_vector(part.parameters())
    nn.utils.vector_to_parameters(vector * 2, part.parameters())


def pruned(part: Any) -> None:
    if not prune.is_pruned(part.linear):
        prune.l1_unstructured(part.linear, "weight", amount=0.5)
    part.linear.weight_mask.data[0].logical_not_()


def parametrized_or_not(part: Any) -> None:
    if parametrize.is_parametrized(part.linear):
        parametrize.remove_parametrizations(part.linear, "weight", leave_parametrized=False)
    else:
        parametrize.register_parametrization(part.linear, "weight", Double())


def new_buffer(part: Any) -> None:
    part.register_buffer("offset", part.offset.clone() + 1, persistent=False)


def in_shared_memory(part: Any) -> None:
    part.share_memory()
    part.linear.weight.data.mul_(2)


def normalize(part: Any) -> None:
    if not parametrize.is_parametrized(part.linear):
        parametrizations.weight_norm(part.linear)
    part.linear.parametrizations.weight.original0.data.mul_(2)


class Double(nn.Module):
    def forward(self, x: Any) -> Any:
        return 2 * x


def set_item(name: str, value: Any) -> Callable[[Any], None]:
    return lambda part: part.more.__setitem__(name, value)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "mul_": lambda part: part.linear.weight.mul_(2),
    "data.mul_": lambda part: part.linear.weight.data.mul_(2),
    "data +=": lambda part: part.linear.weight.data.add_(1),
    "data one number": lambda part: part.linear.weight.data[7, 3].add_(1e-2),
    "data signs": lambda part: part.linear.weight.data.mul_(-1),
    "data rows swapped": swap_rows,
    "data transposed": turn,
    "data replaced": lambda part: setattr(part.linear.weight, "data", torch.randn(WIDTH, WIDTH)),
    "numpy": lambda part: part.linear.weight.detach().numpy().__imul__(3),
    "numpy view kept": lambda part: part.linear.bias.detach().numpy().__setitem__(slice(None), 4),
    "memory": lambda part: raw(part.linear.weight, 2.0),
    "detach": lambda part: part.linear.weight.detach().copy_(torch.ones(WIDTH, WIDTH)),
    "set_": lambda part: part.linear.weight.set_(torch.randn(WIDTH, WIDTH)),
    "load_state_dict": lambda part: part.load_state_dict({k: v + 1 for k, v in part.state_dict().items()}),
    "load_state_dict assign": lambda part: part.load_state_dict(
        {k: v + 1 for k, v in part.state_dict().items()}, assign=True
    ),
    "sgd": lambda part: optimize(part, torch.optim.SGD),
    "adam": lambda part: optimize(part, torch.optim.Adam),
    "adam foreach": lambda part: optimize(part, torch.optim.Adam, foreach=True),
    "average": average,
    "low rank": low_rank,
    "low rank and back": lambda part: (low_rank(part), part.linear.weight.data.sub_(1)),
    "init": lambda part: nn.init.ones_(part.linear.weight),
    "clamp": lambda part: part.linear.weight.data.clamp_(-0.1, 0.1),
    "half and float": same_address,
    "to and back": lambda part: part.to(torch.float64).to(torch.float32).linear.weight.data.mul_(2),
    "new parameter": lambda part: setattr(part.linear, "weight", nn.Parameter(torch.randn(WIDTH, WIDTH))),
    "new part": lambda part: setattr(part, "linear", nn.Linear(WIDTH, WIDTH)),
    "part wrapped": lambda part: setattr(part, "linear", nn.Sequential(part.linear, Double())),
    "tied": tie,
    "table": lambda part: part.table.weight.data.add_(1),
    "buffer": lambda part: part.offset.add_(1),
    "buffer data": lambda part: part.offset.data.add_(1),
    "buffer replaced": lambda part: setattr(part, "offset", torch.ones(WIDTH)),
    "plain tensor": lambda part: part.plain.add_(1),
    "plain tensor numpy": lambda part: part.plain.numpy().__iadd__(1),
    "plain tensor replaced": lambda part: setattr(part, "plain", torch.ones(WIDTH)),
    "tensor in a list": lambda part: part.more["scales"][0].data.add_(1),
    "list item": lambda part: part.more["scales"].__setitem__(0, torch.zeros(WIDTH)),
    "number in a dict": set_item("gain", 3.0),
    "number": lambda part: setattr(part, "steps", 1),
    "train": lambda part: part.train(),
    "hook": hook,
    "hook of the root": hook_of_the_root,
    "hook added or removed": hook_added_or_removed,
    "adapter added or removed": adapter_added_or_removed,
    "adapter trained": adapter_trained,
    "moving average": moving_average,
    "same parameter": same_parameter,
    "from a vector": from_a_vector,
    "pruned": pruned,
    "parametrized or not": parametrized_or_not,
    "buffer registered": new_buffer,
    "shared memory": in_shared_memory,
    "storage": lambda part: part.linear.weight.untyped_storage().copy_((part.linear.weight * 2).untyped_storage()),
    "double": lambda part: part.double().linear.weight.mul_(2),
    "bfloat16": lambda part: part.bfloat16().linear.weight.mul_(2),
    "half": lambda part: part.half().linear.weight.mul_(2),
    "parametrization": lambda part: parametrize.register_parametrization(part.linear, "weight", Double()),
    "weight norm": normalize,
    "forward": lambda part: setattr(part, "forward", lambda x: Part.forward(part, x) * 3),
    "class": lambda part: setattr(part, "__class__", type("Other", (Part,), {"forward": lambda self, x: x - 1})),
    "requires_grad": lambda part: part.linear.weight.requires_grad_(False).data.mul_(2),
}
