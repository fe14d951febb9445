"""One session of a wrapped module, and how a call of the module becomes a run of it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ortisan.errors import ArtifactError, OptionError
from ortisan.runtime.artifact import Artifact
from ortisan.torch.axes import Dynamic, check_size
from ortisan.torch.caches import put_contents
from ortisan.torch.capture import Captured, Cut, capture
from ortisan.torch.compiled import CompiledGraph
from ortisan.torch.dump import Dump, dump_graph
from ortisan.torch.export import is_of_torch, transform, weights_as_inputs
from ortisan.torch.options import FrontOptions
from ortisan.torch.runner import Runner, open_runner
from ortisan.torch.store import artifact_of
from ortisan.torch.tree import flatten, same_structure, unflatten


def kind_of(tensors: Sequence[torch.Tensor]) -> list[tuple[Any, ...]]:
    return [(tensor.shape, tensor.dtype, tensor.device.type) for tensor in tensors]


@dataclass(frozen=True, eq=False)
class Kind:
    """The signature of a call: its arguments' structure, each tensor's shape, type and device, and torch's state."""

    tree: Any
    tensors: list[tuple[Any, ...]]
    state: tuple[Any, ...] = ()
    """Settings of torch that a trace depends on: autocast and the default type."""


@dataclass(frozen=True, eq=False)
class Entry:
    """A session, and the calls that it serves."""

    kind: Kind
    captured: Captured
    bounds: Mapping[str, int | tuple[int, int]]
    taken: tuple[int | torch.Tensor, ...]
    """What the session takes, in its order: tensors of the call by their index, and weights that are not baked in."""
    runner: Runner | CompiledGraph
    artifacts: tuple[Artifact, ...]
    """One, or none yet of a module that is cut around ops without an ONNX form."""
    from_disk: bool
    reads_weights: bool
    """Whether every weight is read in each run, so that none of them can be out of date."""

    @property
    def artifact(self) -> Artifact:
        if not self.artifacts:
            raise ArtifactError("this session is in parts, around ops that run eager, and has no artifact of its own")
        return self.artifacts[0]

    def serves(self, kind: Kind) -> bool:
        """Raises `OptionError` if a size is outside of its declared range."""
        if kind.state != self.kind.state:
            return False
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

    def run(self, tensors: Sequence[torch.Tensor], containers: Sequence[Any] = ()) -> Any:
        """The module's result. `containers` are those of the call, which are changed as the forward changes them."""
        given = [tensors[each] if isinstance(each, int) else each for each in self.taken]
        computed = self.captured.with_aliases(list(self.runner(given)), tensors)
        results, *contents = (unflatten(tree, computed, containers) for tree in self.captured.results)
        for index, each in zip(self.captured.changed, contents, strict=True):
            put_contents(containers[index], each)
        return results


def torch_state() -> tuple[Any, ...]:
    if not torch.is_autocast_enabled("cpu"):
        return (torch.get_default_dtype(),)
    return torch.get_default_dtype(), torch.get_autocast_dtype("cpu")


def build_entry(
    module: nn.Module, args: Any, kwargs: Any, dynamic: Dynamic, options: FrontOptions, *, bake: bool = True
) -> Entry:
    """Exports the module for this call, and builds it. With `bake`, weights that kernels pack are part of the build."""
    tensors, tree = flatten((args, kwargs))
    captured = capture(module, args, kwargs, dynamic, options)
    present = _present_dims(captured, dynamic, options)
    options = replace(options, build=replace(options.build, dims=present))
    if captured.cut is not None:
        kind = Kind(tree, kind_of(tensors), torch_state())
        return _build_parts(captured, captured.cut, kind, type(module).__name__, options)
    model = transform(captured.whole, options)
    weights = (
        {} if options.freeze else weights_as_inputs(model, [*module.parameters(), *module.buffers()], every=not bake)
    )
    reads_weights = not any(is_of_torch(value) for value in model.graph.initializers.values())
    artifact, from_disk = artifact_of(model, options)
    runner = open_runner(artifact, options.session_options, options.providers)
    places: dict[str, int | torch.Tensor] = {**weights, **{name: i for i, name in enumerate(captured.names)}}
    taken = tuple(places[name] for name in runner.inputs)
    if options.dump is not None:
        given = {name: places[name] for name in runner.inputs}
        inputs = {name: (tensors[each] if isinstance(each, int) else each).detach() for name, each in given.items()}
        dump_graph(options.dump, type(module).__name__, Dump(model, artifact, captured.text, inputs))
    return Entry(
        Kind(tree, kind_of(tensors), torch_state()),
        captured,
        options.dims,
        taken,
        runner,
        (artifact,),
        from_disk,
        reads_weights,
    )


def _build_parts(captured: Captured, cut: Cut, kind: Kind, name: str, options: FrontOptions) -> Entry:
    """A session of a module that is cut: its parts are built when they first run. It lasts until a weight changes."""
    own = {id(each) for each in cut.weights}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graph = CompiledGraph(cut.graph, options, title=name, is_weight=lambda each: id(each) in own)
    if graph.islands is None:
        raise cut.error
    for each in caught:
        warnings.warn(each.message, each.category, stacklevel=2)
    taken = (*cut.weights, *range(len(captured.names)))
    return Entry(kind, captured, options.dims, taken, graph, (), from_disk=False, reads_weights=False)


def _present_dims(captured: Captured, dynamic: Dynamic, options: FrontOptions) -> dict[str, int | tuple[int, int]]:
    """The declared dims that are symbolic here: sizes of 0 and 1 are exported as numbers."""
    present = {dim for dims in captured.dims for dim in dims if isinstance(dim, str)}
    named = {word for axes in dynamic.values() for word in axes.values()} if isinstance(dynamic, Mapping) else set()
    unknown = sorted(set(options.dims) - present - named)
    if unknown:
        known = ", ".join(sorted(present | named)) or "none"
        raise OptionError(f"dims: there is no symbolic dim '{unknown[0]}'; the symbolic dims are: {known}")
    return {name: bound for name, bound in options.dims.items() if name in present}
