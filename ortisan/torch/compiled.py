"""One graph of torch.compile: exported when it is made, built when it is called, built anew when its weights change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from ortisan.torch.options import Options
from ortisan.torch.reasons import refuse
from ortisan.torch.runner import Runner, open_runner
from ortisan.torch.store import artifact_of

_REBUILDS = 2
"""A weight that changed so often is an input from then on, which is slower and needs no build."""


def versions(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """What tells whether tensors changed: counted writes, and where they lie. Inference tensors count no writes."""
    return [(0 if t.is_inference() else t._version, t.data_ptr()) for t in tensors]


class CompiledGraph:
    """Called with a list of arguments, which it empties, as AOTAutograd does. Gives what the FX graph gives."""

    def __init__(
        self, module: fx.GraphModule, options: Options, *, title: str, is_weight: Callable[[Any], bool]
    ) -> None:
        self._boxed_call = True
        self.module, self.options, self.title = module, options, title
        self.artifact: Artifact | None = None
        self._is_weight = is_weight
        self._changes: dict[int, int] = {}
        self._weights: list[int] = []
        self._inputs: list[int] = []
        self._versions: list[tuple[int, int]] = []
        self._runner: Runner | None = None
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

    def _compute(self, args: list[Any]) -> Any:
        if self.program is None:
            return self.module(*args)
        if self._runner is None or self._is_stale(args):
            try:
                self._build(args)
            except OrtisanError as error:
                self.fall_back(error)
                return self.module(*args)
        return self._run(args)

    def _run(self, args: list[Any]) -> tuple[Any, ...]:
        program, runner = self.program, self._runner
        if program is None or runner is None:
            raise AssertionError("a graph is run before it is built")
        tensors = [args[index] for index in self._inputs]
        computed = runner([t if isinstance(t, torch.Tensor) else torch.tensor(t, dtype=torch.int64) for t in tensors])
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

    def _is_stale(self, args: Sequence[Any]) -> bool:
        """Whether a weight is another tensor than it was, or was written to. What changes often becomes an input."""
        now = [args[index] for index in self._weights]
        found = versions(now)
        if found == self._versions:
            return False
        for index, tensor, new, old in zip(self._weights, now, found, self._versions, strict=True):
            if new != old:
                step = 1 if isinstance(tensor, torch.nn.Parameter) else _REBUILDS
                self._changes[index] = self._changes.get(index, 0) + step
        return True

    def _build(self, args: Sequence[Any]) -> None:
        program, model = self.program, self.model
        if program is None or model is None:
            raise AssertionError("a graph is built that was not exported")
        taken = program.arguments
        fixed = {
            position: args[index]
            for position, index in enumerate(taken)
            if self._changes.get(index, 0) < _REBUILDS and self._is_weight(args[index])
        }
        self._weights = [taken[position] for position in fixed]
        self._inputs = [index for position, index in enumerate(taken) if position not in fixed]
        self._versions = versions(list(fixed.values()))
        held = dict(enumerate(program.constants, len(taken)))
        ready = with_weights(model, fixed | held)
        self.artifact, _ = artifact_of(ready, self.options)
        self._runner = open_runner(self.artifact)
        if self.options.dump is not None:
            inputs = {name: args[index] for name, index in zip(self._runner.inputs, self._inputs, strict=True)}
            dump_graph(self.options.dump, self.title, Dump(ready, self.artifact, str(self.module.graph), inputs))
