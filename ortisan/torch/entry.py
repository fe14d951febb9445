"""One session of a wrapped module, and how a call of the module becomes a run of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ortisan.errors import OptionError
from ortisan.runtime.artifact import Artifact
from ortisan.torch.axes import Dynamic, check_size
from ortisan.torch.capture import Captured, capture
from ortisan.torch.dump import Dump, dump_graph
from ortisan.torch.export import transform
from ortisan.torch.options import FrontOptions
from ortisan.torch.runner import Runner, open_runner
from ortisan.torch.store import artifact_of
from ortisan.torch.tree import flatten, same_structure, unflatten


def kind_of(tensors: Sequence[torch.Tensor]) -> list[tuple[Any, ...]]:
    return [(tensor.shape, tensor.dtype, tensor.device.type) for tensor in tensors]


@dataclass(frozen=True, eq=False)
class Kind:
    """The signature of a call: the structure of its arguments, and each tensor's shape, type and device."""

    tree: Any
    tensors: list[tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class Entry:
    """A session, and the calls that it serves."""

    kind: Kind
    captured: Captured
    bounds: Mapping[str, int | tuple[int, int]]
    taken: tuple[int, ...]
    """The tensors that the session takes, in its order."""
    runner: Runner
    artifact: Artifact
    from_disk: bool

    def serves(self, kind: Kind) -> bool:
        """Raises `OptionError` if a size is outside of its declared range."""
        if kind.tensors == self.kind.tensors:
            return same_structure(kind.tree, self.kind.tree)
        sizes = self._sizes(kind)
        if sizes is None or not same_structure(kind.tree, self.kind.tree):
            return False
        for name, size in sizes.items():
            check_size(name, size, self.bounds.get(name))
        return self.captured.holds(sizes)

    def _sizes(self, kind: Kind) -> dict[str, int] | None:
        """The symbols' values for a call with other shapes, or None if this session does not fit it."""
        if len(kind.tensors) != len(self.kind.tensors):
            return None
        sizes: dict[str, int] = {}
        for (shape, *rest), (_, *own), dims in zip(kind.tensors, self.kind.tensors, self.captured.dims, strict=True):
            if rest != own or len(shape) != len(dims):
                return None
            for size, dim in zip(shape, dims, strict=True):
                if isinstance(dim, str) and size < 2:
                    return None
                if (sizes.setdefault(dim, size) if isinstance(dim, str) else dim) != size:
                    return None
        return sizes

    def run(self, tensors: Sequence[torch.Tensor]) -> Any:
        computed: list[Any] = list(self.runner([tensors[index] for index in self.taken]))
        return unflatten(self.captured.results, self.captured.with_aliases(computed, tensors))


def build_entry(module: nn.Module, args: Any, kwargs: Any, dynamic: Dynamic, options: FrontOptions) -> Entry:
    """Exports the module for this call, and builds it."""
    tensors, tree = flatten((args, kwargs))
    captured = capture(module, args, kwargs, dynamic, options)
    present = _present_dims(captured, dynamic, options)
    options = replace(options, build=replace(options.build, dims=present))
    model = transform(captured.model, options)
    artifact, from_disk = artifact_of(model, options)
    runner = open_runner(artifact)
    places = {name: index for index, name in enumerate(captured.names)}
    taken = tuple(places[name] for name in runner.inputs)
    if options.dump is not None:
        inputs = {name: tensors[places[name]].detach() for name in runner.inputs}
        dump_graph(options.dump, type(module).__name__, Dump(model, artifact, captured.text, inputs))
    return Entry(Kind(tree, kind_of(tensors)), captured, options.dims, taken, runner, artifact, from_disk)


def _present_dims(captured: Captured, dynamic: Dynamic, options: FrontOptions) -> dict[str, int | tuple[int, int]]:
    """The declared dims that are symbolic here: sizes of 0 and 1 are exported as numbers."""
    present = {dim for dims in captured.dims for dim in dims if isinstance(dim, str)}
    named = {word for axes in dynamic.values() for word in axes.values()} if isinstance(dynamic, Mapping) else set()
    unknown = sorted(set(options.dims) - present - named)
    if unknown:
        known = ", ".join(sorted(present | named)) or "none"
        raise OptionError(f"dims: there is no symbolic dim '{unknown[0]}'; the symbolic dims are: {known}")
    return {name: bound for name, bound in options.dims.items() if name in present}
