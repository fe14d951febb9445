"""Runs an architecture on one road at several sizes, against eager, and says what was compiled."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch

import ortisan.torch as front
from ortisan.errors import OrtisanError
from ortisan.runtime.artifact import Artifact
from ortisan.torch.compiled import CompiledGraph
from ortisan.torch.dynamo import compile_graph
from ortisan.torch.options import front_options
from ortisan.torch.reasons import WentEager, for_dynamo
from ortisan.torch.tracing import alone
from tools.architectures.models import make_inputs

Road: TypeAlias = Literal["compile", "wrapper"]
ROADS: tuple[Road, ...] = ("compile", "wrapper")
SIZES = ((2, 8), (3, 12), (5, 16))
"""Batch and length."""
TOLERANCE = 2e-5
"""Of the largest value of an output."""
_NOISE = 2.0
"""Times eager's own distance from float64, which two ways to compute the same may be apart."""
_LEAST = 1e-3
"""Outputs below this prove nothing."""


@dataclass(frozen=True)
class Outcome:
    """`error` is the largest difference from eager, by the largest value of the output."""

    error: float
    graphs: int
    """Sessions that ran, of all sizes."""
    compiled: int
    nodes: int
    """ONNX nodes of these, of which so many are compiled."""
    eager: tuple[str, ...] = ()
    """Why graphs, or parts of them, ran eager."""
    noise: float = 0.0
    """Eager's own distance from float64, where the error is above the tolerance."""

    @property
    def is_whole(self) -> bool:
        return bool(self.graphs) and not self.eager

    @property
    def is_right(self) -> bool:
        return self.error <= max(TOLERANCE, _NOISE * self.noise)


def run(name: str, model: Any, road: Road) -> Outcome:
    """Raises what a caller would see, and `AssertionError` where the model's outputs prove nothing."""
    found = _under_torch_compile(name, model) if road == "compile" else _in_the_wrapper(name, model)
    return found if found.is_right else replace(found, noise=_noise(name, model))


def _noise(name: str, model: Any) -> float:
    def exact(**inputs: Any) -> Any:
        wide = {name: each.double() if _is_float(each) else each for name, each in inputs.items()}
        return {name: each.float() if _is_float(each) else each for name, each in double(**wide).items()}

    double = copy.deepcopy(model).double()
    return _compare(name, model, exact)


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _under_torch_compile(name: str, model: Any) -> Outcome:
    made: list[CompiledGraph] = []
    options = front_options({})

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        try:
            with alone():
                return compile_graph(module, inputs, options, on_graph=made.append)
        except OrtisanError as error:
            raise for_dynamo(error) from error

    torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", WentEager)
        error = _compare(name, model, torch.compile(model, backend=backend, dynamic=True))
    reasons = dict.fromkeys(
        str(each.message).partition(" runs eager: ")[2] for each in caught if each.category is WentEager
    )
    torch._dynamo.reset()
    return _outcome(error, _built(made), tuple(reasons))


def _in_the_wrapper(name: str, model: Any) -> Outcome:
    fast = front.compile(model, dynamic=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", WentEager)
        try:
            error = _compare(name, model, fast)
        except OrtisanError as refused:
            return Outcome(0.0, 0, 0, 0, (str(refused),))
    reasons = [str(each.message).partition(" runs eager: ")[2] for each in caught if each.category is WentEager]
    cut = [entry.runner for entry in fast.entries() if isinstance(entry.runner, CompiledGraph)]
    whole = [artifact for entry in fast.entries() for artifact in entry.artifacts]
    return _outcome(error, (*whole, *_built(cut)), tuple(dict.fromkeys(reasons)))


def _built(graphs: Iterable[CompiledGraph]) -> list[Artifact]:
    """Of graphs and of the parts of those that were cut."""
    return [part.artifact for graph in graphs for part in graph.parts if part.artifact is not None]


def _outcome(error: float, artifacts: Iterable[Artifact], eager: tuple[str, ...]) -> Outcome:
    manifests = [artifact.manifest for artifact in artifacts]
    compiled = sum(each["compiled_nodes"] for each in manifests)
    left = sum(len(group["nodes"]) for each in manifests for group in each["left_out"])
    return Outcome(error, len(manifests), compiled, compiled + left, eager)


def _compare(name: str, model: Any, fast: Any) -> float:
    worst = 0.0
    with torch.no_grad():
        for batch, length in SIZES:
            inputs = make_inputs(name, batch, length)
            have, want = _tensors(fast(**inputs)), _tensors(model(**inputs))
            if len(have) != len(want):
                raise AssertionError(f"{name} gave {len(have)} tensors, and eager {len(want)}")
            for a, b in zip(have, want, strict=True):
                largest = float(b.abs().max())
                if b is want[0] and not _LEAST < largest < float("inf"):
                    raise AssertionError(f"outputs of {name} are {largest}, which proves nothing")
                worst = max(worst, float((a - b).abs().max()) / max(largest, _LEAST))
    return worst


def _tensors(output: Any) -> list[torch.Tensor]:
    found = [output] if isinstance(output, torch.Tensor) else list(output.values())
    return [each for each in found if _is_float(each)]
