"""Gradients that may never be asked for.

A call outside of `torch.no_grad()` has to be ready for a backward, so its graph keeps what that reads, and weights are
inputs of it, because training changes them. Where no backward ever comes, all of this is for nothing: after a few
calls without one, the graph for inference runs instead, and a backward that does come runs the forward again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ortisan.torch.direct import Traced
from ortisan.torch.tracing import alone

_PATIENCE = 3
"""Calls without a backward before inference is assumed."""


@dataclass(frozen=True, eq=False)
class Graphs:
    """What AOTAutograd made of one graph of dynamo's: for training, and, not exported yet, for inference."""

    forward: Traced = field(default_factory=Traced)
    backward: Traced = field(default_factory=Traced)
    late: Traced = field(default_factory=Traced)


class Deferred:
    """A compiled graph that is called with gradients enabled: `train` is differentiable, `infer` computes the same."""

    def __init__(self, train: Callable[..., Any], infer: Callable[..., Any], graphs: Graphs) -> None:
        self._train, self._infer, self._graphs = train, infer, graphs
        self._is_settled = self._is_exported = False
        self._seen = 0
        self._differentiable: list[bool] = []

    def __call__(self, *args: Any) -> Any:
        if self._is_settled:
            return self._train(*args)
        if self._seen < _PATIENCE or not torch.is_grad_enabled():
            return self._watched(args)
        if any(graph.calls for graph in self._graphs.backward.graphs) or not self._can_infer():
            self._is_settled = True
            return self._train(*args)
        return _Call.apply(self, *args)  # type: ignore[no-untyped-call]

    def _can_infer(self) -> bool:
        """Exports the graphs for inference, once."""
        with alone():
            if not self._is_exported:
                self._is_exported = True
                for graph in self._graphs.late.graphs:
                    graph.export()
        return all(graph.program is not None for graph in self._graphs.late.graphs)

    def _watched(self, args: Sequence[Any]) -> Any:
        """Trains, and finds out whether inference could take its place: nothing random, changed or shared."""
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        before = [each._version for each in tensors if not each.is_inference()]
        results = self._train(*args)
        after = [each._version for each in tensors if not each.is_inference()]
        given = [each for each in results if isinstance(each, torch.Tensor)]
        places = [each.untyped_storage().data_ptr() for each in (*given, *tensors) if each.numel()]
        is_shared = len({*places[: len(given)]}) < len(given) or not {*places[: len(given)]}.isdisjoint(
            places[len(given) :]
        )
        is_plain = bool(self._graphs.forward.graphs) and not self._graphs.forward.draws()
        self._differentiable = [isinstance(each, torch.Tensor) and each.requires_grad for each in results]
        self._seen += 1
        if before != after or is_shared or not is_plain or not any(self._differentiable):
            self._is_settled = True
        return results

    def infer(self, args: Sequence[Any]) -> Any:
        with torch.no_grad():
            return self._infer(*args)

    def train_again(self, args: Sequence[Any]) -> Any:
        """The forward with gradients. From now on it is the one that runs."""
        self._is_settled = True
        with torch.enable_grad():
            return self._train(*args)

    def is_differentiable(self, index: int) -> bool:
        return self._differentiable[index]


class _Call(torch.autograd.Function):
    """A call whose forward is run again when its gradient is asked for."""

    @staticmethod
    def forward(ctx: Any, graph: Deferred, *args: Any) -> Any:
        results = tuple(graph.infer(args))
        ctx.graph = graph
        ctx.numbers = [None if isinstance(each, torch.Tensor) else each for each in args]
        ctx.save_for_backward(*(each if isinstance(each, torch.Tensor) else None for each in args))
        ctx.set_materialize_grads(False)
        fixed = [
            each
            for index, each in enumerate(results)
            if isinstance(each, torch.Tensor) and not graph.is_differentiable(index)
        ]
        ctx.mark_non_differentiable(*fixed)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        needed = ctx.needs_input_grad[1:]
        args = [
            number if tensor is None else tensor.detach().requires_grad_(needs and tensor.is_floating_point())
            for tensor, number, needs in zip(ctx.saved_tensors, ctx.numbers, needed, strict=True)
        ]
        results = ctx.graph.train_again(args)
        pairs = [
            (result, gradient)
            for result, gradient in zip(results, gradients, strict=True)
            if gradient is not None and isinstance(result, torch.Tensor) and result.requires_grad
        ]
        wanted = [arg for arg, needs in zip(args, needed, strict=True) if needs]
        found = torch.autograd.grad([r for r, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True)
        rest = iter(found)
        return None, *(next(rest) if needs else None for needs in needed)
