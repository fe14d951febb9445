"""Compiled subgraphs as models of their own, and the values that flow into them when the whole model runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from ortisan.checks.isolated import Runner
from ortisan.checks.samples import Case
from ortisan.checks.session import SessionSpec, reference_session
from ortisan.converter.partition import Subgraph, boundary
from ortisan.converter.passes.rounding import rounded_outputs
from ortisan.converter.save import save_with_external_data
from ortisan.converter.substitute import substitute
from ortisan.errors import OptionError
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.convert import substitute_ops
from ortisan.registry.dtypes import Array, DType
from ortisan.runtime.engine import Feeds, RunFailed


@dataclass(frozen=True)
class Part:
    """One subgraph: the custom op, and the nodes it stands for, each as a model with the subgraph's outputs."""

    ours: SessionSpec
    theirs: Path
    our_inputs: tuple[str, ...]
    their_inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    rounded: Mapping[str, DType]

    def our_feeds(self, values: Feeds) -> dict[str, Array]:
        return {name: values[name] for name in self.our_inputs}

    def their_feeds(self, values: Feeds) -> dict[str, Array]:
        return {name: values[name] for name in self.their_inputs}


class Parts:
    """The subgraphs of a compilation whose library is built, written to `folder` when they are asked for."""

    def __init__(self, compiled: Compilation, library: Path, folder: Path) -> None:
        self._compiled, self._library, self._folder = compiled, library, folder
        self.plain, self._converted = substitute(compiled.model, ()), substitute_ops(compiled)

    def part(self, index: int) -> Part | None:
        """None for what can't be taken out of the model, such as a part of a loop's body."""
        compiled, subgraph = self._compiled, self._compiled.subgraphs[index]
        if not is_separable(subgraph):
            return None
        place = self._folder / str(index)
        place.mkdir(exist_ok=True)
        read, written = boundary(subgraph.nodes)
        outputs = tuple(value.name or "" for value in written)
        ours_read, theirs_read = (tuple(value.name or "" for value in values) for values in (subgraph.inputs, read))
        try:
            _extract(self._converted, ours_read, outputs, place, "ours")
            theirs = _extract(self.plain, theirs_read, outputs, place, "theirs")
        except (ValueError, KeyError):
            return None
        settings: Mapping[str, str] = compiled.target.describe(compiled.plans, compiled.options, built=True)["settings"]
        ours = SessionSpec(
            place / "ours.onnx",
            providers=tuple(compiled.target.providers),
            library=self._library,
            ops=(compiled.ops[index],),
            settings=tuple(settings.items()),
        )
        return Part(ours, place / "theirs.onnx", ours_read, theirs_read, outputs, rounded_outputs(theirs))

    def values(self, runner: Runner, indices: Sequence[int], cases: Iterable[Case]) -> Mapping[str, Array]:
        """What flows into these subgraphs when the model runs on the first of the inputs that it accepts."""
        subgraphs = [self._compiled.subgraphs[index] for index in indices]
        return boundary_values(runner, self.plain, subgraphs, cases, self._folder)


def is_separable(subgraph: Subgraph) -> bool:
    """Whether a subgraph can be a model of its own."""
    return not subgraph.scope


def boundary_values(
    runner: Runner, plain: ir.Model, subgraphs: Sequence[Subgraph], cases: Iterable[Case], folder: Path
) -> Mapping[str, Array]:
    """What flows into the main graph's subgraphs when the model runs on the first of the inputs that it accepts."""
    model = plain.clone()
    defaults = {
        value.name or "": value.const_value.numpy()
        for value in model.graph.inputs
        if value.is_initializer() and value.const_value is not None
    }
    outputs = {value.name for value in model.graph.outputs} | {value.name for value in model.graph.inputs}
    made = {value.name: value for node in model.graph for value in node.outputs}
    parts = [boundary(subgraph.nodes) for subgraph in subgraphs if is_separable(subgraph)]
    wanted = dict.fromkeys(value.name for read, _ in parts for value in read)
    model.graph.outputs.extend(made[name] for name in wanted if name in made and name not in outputs)
    save_with_external_data(model, folder, "whole")
    session = reference_session(folder / "whole.onnx")
    names = runner.open(session)
    failure: RunFailed | None = None
    try:
        for case in cases:
            try:
                results = runner.run(session, case.feeds).outputs
            except RunFailed as failed:
                failure = failed
                continue
            return {**defaults, **case.feeds, **dict(zip(names, results, strict=True))}
    finally:
        runner.forget(session)
    raise OptionError(
        f"the model runs on none of the sample inputs ({failure}); give inputs (inputs=), or build with keep='all'"
    )


def _extract(model: ir.Model, inputs: Sequence[str], outputs: Sequence[str], folder: Path, name: str) -> ir.Model:
    """Writes the nodes between some values as NAME.onnx."""
    part = ir.Model(ir.convenience.extract(model.graph, inputs, outputs), ir_version=model.ir_version)
    part.opset_imports.update(model.opset_imports)
    save_with_external_data(part, folder, name)
    return part
