"""One graph of torch.compile: exported on creation, built on its first call, rebuilt if its weights change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from torch import fx

from ortisan.errors import OrtisanError
from ortisan.runtime.artifact import Artifact
from ortisan.torch.check import compare_with_eager
from ortisan.torch.dump import Dump, dump_graph
from ortisan.torch.export import to_onnx, transform, with_weights
from ortisan.torch.graph import Program, read_graph
from ortisan.torch.intercepting import describe_call, show
from ortisan.torch.options import FrontOptions
from ortisan.torch.reasons import refuse
from ortisan.torch.runner import Runner, open_runner
from ortisan.torch.store import artifact_of

_REBUILDS = 2
"""A weight that changed this often becomes an input, which is slower but needs no rebuild."""


def versions(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """A fingerprint of tensors: write counters and addresses. Inference tensors have no write counter."""
    return [(0 if t.is_inference() else t._version, t.data_ptr()) for t in tensors]


@dataclass(frozen=True, eq=False)
class _Built:
    """A session, which arguments are its weights and its inputs, and the fingerprint of the weights."""

    artifact: Artifact
    runner: Runner
    weights: list[int]
    inputs: list[int]
    versions: list[tuple[int, int]]


class CompiledGraph:
    """A callable that takes a list of arguments and clears it, as AOTAutograd's do; returns the FX graph's results."""

    def __init__(
        self, module: fx.GraphModule, options: FrontOptions, *, title: str, is_weight: Callable[[Any], bool]
    ) -> None:
        self._boxed_call = True
        self.module, self.options, self.title = module, options, title
        self._is_weight = is_weight
        self._changes: dict[int, int] = {}
        self._built: _Built | None = None
        self._lock = threading.Lock()
        self.program: Program | None = None
        self.model: ir.Model | None = None
        try:
            self.program = read_graph(module)
            self.model = transform(to_onnx(self.program.exported, options)[0], options)
        except OrtisanError as error:
            self.fall_back(error)

    def fall_back(self, error: OrtisanError) -> None:
        self.program = self.model = None
        refuse(self.title, error, strict=self.options.strict)

    def __call__(self, args: list[Any]) -> Any:
        if self.options.intercept:
            show(describe_call(self.title, args, {}), self.options.intercept)
        results = self._compute(args)
        if self.program is not None and self.options.check == "eager":
            compare_with_eager(self.title, results, self.module(*args))
        args.clear()
        return results

    @property
    def artifact(self) -> Artifact | None:
        return self._built.artifact if self._built is not None else None

    def _compute(self, args: list[Any]) -> Any:
        program, built = self.program, self._built
        if program is None:
            return self.module(*args)
        if built is None or versions([args[index] for index in built.weights]) != built.versions:
            try:
                with self._lock:
                    built = self._built_for(args)
            except OrtisanError as error:
                self.fall_back(error)
                return self.module(*args)
        tensors = [args[index] for index in built.inputs]
        computed = built.runner([t if isinstance(t, torch.Tensor) else torch.tensor(t) for t in tensors])
        results: list[Any] = []
        for output in program.outputs:
            if output.kind == "tensor":
                results.append(output.place(computed[output.index]))
            elif output.kind == "argument":
                results.append(args[output.index])
            elif output.kind == "int":
                results.append(int(computed[output.index]))
            else:
                results.append(output.value)
        return tuple(results)

    def _built_for(self, args: Sequence[Any]) -> _Built:
        """Builds a session for these weights; weights that change often become inputs."""
        old = self._built
        if old is not None:
            now = versions([args[index] for index in old.weights])
            if now == old.versions:
                return old
            for index, new, seen in zip(old.weights, now, old.versions, strict=True):
                if new != seen:
                    step = 1 if isinstance(args[index], torch.nn.Parameter) else _REBUILDS
                    self._changes[index] = self._changes.get(index, 0) + step
        self._built = self._build(args)
        return self._built

    def _build(self, args: Sequence[Any]) -> _Built:
        program, model = self.program, self.model
        if program is None or model is None:
            raise AssertionError("a graph is built that was not exported")
        taken = program.arguments
        fixed = {
            position: args[index]
            for position, index in enumerate(taken)
            if self._changes.get(index, 0) < _REBUILDS and self._is_weight(args[index])
        }
        inputs = [index for position, index in enumerate(taken) if position not in fixed]
        found = versions(list(fixed.values()))
        ready = with_weights(model, fixed | dict(enumerate(program.constants, len(taken))))
        artifact, _ = artifact_of(ready, self.options)
        runner = open_runner(artifact)
        if self.options.dump is not None:
            given = {name: args[index] for name, index in zip(runner.inputs, inputs, strict=True)}
            dump_graph(self.options.dump, self.title, Dump(ready, artifact, str(self.module.graph), given))
        return _Built(artifact, runner, [taken[position] for position in fixed], inputs, found)
