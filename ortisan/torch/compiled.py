"""One graph of torch.compile: exported on creation, built on its first call, rebuilt if its weights change."""

from __future__ import annotations

import contextlib
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
from ortisan.torch.contents import Contents
from ortisan.torch.dump import Dump, dump_graph, dump_text
from ortisan.torch.export import to_onnx, transform, with_weights
from ortisan.torch.exporters import export_graph
from ortisan.torch.graph import Program, read_graph
from ortisan.torch.intercepting import describe_call, show
from ortisan.torch.islands import cut_around, nodes_of
from ortisan.torch.options import FrontOptions
from ortisan.torch.packing import needs_no_packing
from ortisan.torch.places import place_of
from ortisan.torch.reasons import refuse
from ortisan.torch.runner import Runner, open_runner
from ortisan.torch.store import artifact_of

_REBUILDS = 2
"""A weight that changed this often becomes an input, which is slower but needs no rebuild."""
_DEEPEST = 4
"""How often a graph is cut, each time around other ops."""


@dataclass(frozen=True, eq=False)
class _Built:
    """A session, which arguments are its weights and its inputs, and what the weights held."""

    artifact: Artifact
    runner: Runner
    weights: list[int]
    inputs: list[int]
    contents: Contents

    def has_weights_of(self, args: Sequence[Any]) -> bool:
        return not self.weights or self.contents.are_in([args[index] for index in self.weights])


class CompiledGraph:
    """A callable that takes a list of arguments and clears it, as AOTAutograd's do; returns the FX graph's results.

    With `late`, `export` has to be called before the first call.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        options: FrontOptions,
        *,
        title: str,
        is_weight: Callable[[Any], bool],
        late: bool = False,
        depth: int = 0,
    ) -> None:
        self._boxed_call = True
        self._depth = depth
        self.module, self.options, self.title = module, options, title
        self._is_weight = is_weight
        self._changes: dict[int, int] = {}
        self._built: _Built | None = None
        self._lock = threading.Lock()
        self.calls = 0
        self.islands: Callable[[Sequence[Any]], Any] | None = None
        self._parts: list[CompiledGraph] = []
        self.program: Program | None = None
        self.model: ir.Model | None = None
        if not late:
            self.export()

    def export(self) -> None:
        try:
            self.program = read_graph(self.module)
            self.model = transform(self._exported(self.program), self.options)
        except OrtisanError as error:
            if not self.options.strict:
                self._cut(error)
            self.fall_back(error)

    def _exported(self, program: Program) -> ir.Model:
        if self.options.exporter == "dynamo":
            return to_onnx(program.exported, self.options)[0]
        return export_graph(program, self.options)

    def _cut(self, error: OrtisanError) -> None:
        """Compiles what is around the nodes that the error is about."""
        left = nodes_of(self.module.graph, error)
        if not left or self._depth >= _DEEPEST:
            return

        def compile_part(part: fx.GraphModule) -> CompiledGraph:
            title = f"{self.title}, a part"
            made = CompiledGraph(part, self.options, title=title, is_weight=self._is_weight, depth=self._depth + 1)
            self._parts.append(made)
            return made

        with contextlib.suppress(RuntimeError, ValueError, KeyError, AttributeError):  # what torch can't split
            self.islands = cut_around(self.module, left, compile_part)

    def fall_back(self, error: OrtisanError) -> None:
        self.program = self.model = None
        if self.options.dump is not None:
            dump_text(self.options.dump, self.title, str(self.module.graph), str(error))
        place = place_of(self.module.graph.nodes, error)
        what = self.title if self.islands is None else f"an op of {self.title}"
        refuse(what, error, strict=self.options.strict, place=place)

    def __call__(self, args: list[Any]) -> Any:
        self.calls += 1
        if self.options.intercept:
            show(describe_call(self.title, args, {}), self.options.intercept)
        if self.options.check == "eager":
            results = self._checked(args)
        else:
            results = self._compute(args)
        args.clear()
        return results

    def _checked(self, args: list[Any]) -> Any:
        before = torch.random.get_rng_state()
        results = self._compute(args)
        if self.program is not None:
            after = torch.random.get_rng_state()
            torch.random.set_rng_state(before)
            compare_with_eager(self.title, results, self._eagerly(args))
            torch.random.set_rng_state(after)
        return results

    @property
    def parts(self) -> list[CompiledGraph]:
        """The graph, if it is compiled whole, else the parts of it that are."""
        if self.program is not None:
            return [self]
        return [each for part in self._parts for each in part.parts] if self.islands is not None else []

    @property
    def artifact(self) -> Artifact | None:
        return self._built.artifact if self._built is not None else None

    def _eagerly(self, args: Sequence[Any]) -> Any:
        if self.islands is not None:
            return self.islands(args)
        # Not by calling the module: a call can't be told apart while another thread exports.
        return self.module.forward(*args)

    def _compute(self, args: list[Any]) -> Any:
        built = self._built
        if built is None or not built.has_weights_of(args):
            built = self._renewed(args)
        program = self.program
        if built is None or program is None:
            return self._eagerly(args)
        given = [*args, *(draw(args) for draw in program.draws)] if program.draws else args
        tensors = [given[index] for index in built.inputs]
        computed = built.runner([t if isinstance(t, torch.Tensor) else torch.tensor(t) for t in tensors])
        if program.is_plain:
            return tuple(computed)
        results: list[Any] = []
        for output in program.outputs:
            if output.kind == "tensor":
                results.append(output.place(computed[output.index]))
            elif output.kind == "argument":
                results.append(given[output.index])
            elif output.kind == "int":
                results.append(int(computed[output.index]))
            else:
                results.append(output.value)
        return tuple(results)

    def _renewed(self, args: Sequence[Any]) -> _Built | None:
        """A session for these weights; None if there is none, or while another thread makes one."""
        if self.program is None or not self._lock.acquire(blocking=False):
            return None
        try:
            return self._built_for(args) if self.program is not None else None
        except OrtisanError as error:
            self.fall_back(error)
            return None
        finally:
            self._lock.release()

    def _built_for(self, args: Sequence[Any]) -> _Built:
        """Builds a session for these weights; weights that change often become inputs."""
        old = self._built
        if old is not None:
            own = [args[index] for index in old.weights]
            changed = old.contents.changed_in(own)
            if not changed:
                return old
            for place in changed:
                step = 1 if isinstance(own[place], torch.nn.Parameter) else _REBUILDS
                self._changes[old.weights[place]] = self._changes.get(old.weights[place], 0) + step
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
            if index < len(args) and self._changes.get(index, 0) < _REBUILDS and self._is_weight(args[index])
            if self.options.freeze or not needs_no_packing(model.graph.inputs[position])
        }
        inputs = [index for position, index in enumerate(taken) if position not in fixed]
        contents = Contents(list(fixed.values()), freeze=self.options.freeze)
        ready = with_weights(model, fixed | dict(enumerate(program.constants, len(taken))))
        artifact, _ = artifact_of(ready, self.options)
        runner = open_runner(artifact, self.options.session_options, self.options.providers)
        if self.options.dump is not None:
            given = {name: args[index] for name, index in zip(runner.inputs, inputs, strict=True) if index < len(args)}
            dump_graph(self.options.dump, self.title, Dump(ready, artifact, str(self.module.graph), given))
        return _Built(artifact, runner, [taken[position] for position in fixed], inputs, contents)
