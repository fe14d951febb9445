"""Gradients through the wrapper: the forward runs compiled, and again in eager when a gradient is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ortisan.torch.tree import Flattener, unflatten


def is_asked_for(tensors: Sequence[torch.Tensor], module: nn.Module) -> bool:
    """Whether eager's results would require gradients."""
    if not torch.is_grad_enabled():
        return False
    return any(each.requires_grad for each in tensors) or any(each.requires_grad for each in module.parameters())


def with_gradients(module: nn.Module, tree: Any, walk: Flattener, results: Any) -> Any:
    """The same results, connected to the arguments and parameters that they were computed from.

    Containers of the call that the forward has changed are not: what they hold has no gradient.
    """
    flat, structure = _flat(results, walk.containers)
    tensors = walk.tensors
    own = {id(tensor) for tensor in tensors}
    fresh = [index for index, each in enumerate(flat) if id(each) not in own and each.is_floating_point()]
    if not fresh:
        return results
    parameters = [each for each in module.parameters() if each.requires_grad]
    kept = [each for each in module.buffers() if not each.requires_grad]
    again = _Again(module, tree, fresh, arguments=len(tensors), parameters=len(parameters))
    connected = _Eager.apply(
        again,  # type: ignore[no-untyped-call]
        [flat[index] for index in fresh],
        *tensors,
        *parameters,
        *kept,
    )
    for index, each in zip(fresh, connected, strict=True):
        flat[index] = each
    return unflatten(structure, flat, walk.containers)


def _flat(results: Any, containers: Sequence[Any]) -> tuple[list[torch.Tensor], Any]:
    """The tensors of results, but for those in containers of the call."""
    walk = Flattener({id(each): index for index, each in enumerate(containers)}, results=True)
    structure = walk.flatten(results)
    return walk.tensors, structure


class _Again:
    """How to run the module again, and which of its results are wanted."""

    def __init__(self, module: nn.Module, tree: Any, wanted: list[int], *, arguments: int, parameters: int) -> None:
        self.module, self.tree, self.wanted = module, tree, wanted
        self.arguments, self.parameters = arguments, parameters

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        containers: list[Any] = []
        args, kwargs = unflatten(self.tree, tensors, made=containers)
        with torch.enable_grad():
            flat, _ = _flat(self.module(*args, **kwargs), containers)
        return [flat[index] for index in self.wanted]


class _Eager(torch.autograd.Function):
    """Saves what the forward reads, so that autograd notices when that is changed before the backward."""

    @staticmethod
    def forward(ctx: Any, again: _Again, results: list[torch.Tensor], *tensors: torch.Tensor) -> Any:
        ctx.again = again
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        again: _Again = ctx.again
        saved = ctx.saved_tensors
        count, needed = again.arguments, ctx.needs_input_grad[2:]
        arguments = [
            each.detach().requires_grad_(needs) for each, needs in zip(saved[:count], needed[:count], strict=True)
        ]
        # Parameters are the module's own, so it is they that the second forward reads.
        leaves = [*arguments, *saved[count : count + again.parameters]]
        results = again(arguments)
        pairs = [(r, g) for r, g in zip(results, gradients, strict=True) if g is not None and r.requires_grad]
        wanted = [leaf for leaf, needs in zip(leaves, needed, strict=False) if needs]
        found = iter(torch.autograd.grad([r for r, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True))
        return None, None, *(next(found) if needs else None for needs in needed)
