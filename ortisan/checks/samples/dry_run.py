"""Shapes, time and memory of a model at given input shapes, without running it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ortisan.checks.samples import budget
from ortisan.checks.samples.clues import Clue
from ortisan.checks.samples.misfits import find_misfit
from ortisan.checks.samples.shapes import dims_of
from ortisan.converter.flops import node_flops
from ortisan.converter.passes import cleanup
from ortisan.converter.passes.fold import fold_constants
from ortisan.converter.passes.infer import infer_shapes
from ortisan.converter.passes.quiet import quiet_libraries
from ortisan.converter.read.load import copy_model
from ortisan.errors import OrtisanError

Extents = Mapping[str, tuple[int, ...]]
"""Name of an input -> its shape."""

_TYPICAL_TRIPS = 16
_LARGEST_FOLDED = 1 << 16


@dataclass(frozen=True, eq=False)
class Forecast:
    """What a run would be like."""

    inputs: Sequence[ir.Value]
    """The inputs of a copy of the graph in which shapes are numbers wherever they could be inferred."""
    clue: Clue | None
    """Why it would fail, if it would."""
    depth: int
    """How many nodes run before it fails."""
    seconds: float
    memory: int
    """The bytes of all values that are there at the same time."""


class DryRun:
    """Infers the shapes of copies of one model; the same input shapes once."""

    def __init__(self, model: ir.Model) -> None:
        self._model = copy_model(model)
        with quiet_libraries():
            _fold(self._model)
        self._found: dict[tuple[tuple[str, tuple[int, ...]], ...], Forecast] = {}

    def at(self, extents: Extents) -> Forecast:
        key = tuple(sorted(extents.items()))
        if key not in self._found:
            self._found[key] = self._infer(extents)
        return self._found[key]

    def _infer(self, extents: Extents) -> Forecast:
        model = copy_model(self._model)
        inputs = [value for value in model.graph.inputs if value.name in extents]
        for value in inputs:
            value.shape = ir.Shape(extents[value.name or ""])
        try:
            with quiet_libraries():
                infer_shapes(model)
        except OrtisanError:
            pass  # the shapes up to there are known
        clue, depth = None, 0
        for node in model.graph:  # what is in a branch may never run
            if (clue := find_misfit(node)) is not None:
                break
            depth += 1
        return Forecast(inputs, clue, depth, _seconds(model), _memory(model))


def _fold(model: ir.Model) -> None:
    """Computes small constants, such as the widths of a Pad, whatever the shapes of the inputs are."""
    cleanup.lift_constants(model)
    shapes = {value: value.shape for value in model.graph.inputs}
    for value in shapes:
        value.shape = None
    try:
        infer_shapes(model)
        fold_constants(model, [], _LARGEST_FOLDED)
        cleanup.lift_constants(model)
    except OrtisanError:
        pass  # fewer constants are known
    for value, shape in shapes.items():
        value.shape = shape


def _seconds(model: ir.Model) -> float:
    flops = moved = 0.0
    nodes = 0
    for node in model.graph.all_nodes():
        times = 1 if node.graph is model.graph else _TYPICAL_TRIPS
        flops += times * node_flops(node) if _is_known(node) else 0
        moved += times * sum(_bytes(value) for value in node.outputs)
        nodes += times
    return budget.seconds(flops, moved, nodes)


def _is_known(node: ir.Node) -> bool:
    """Whether all dims that a node reads and writes are numbers; others would count as some typical size."""
    return all(
        (dims := dims_of(value)) is not None and None not in dims
        for value in (*node.inputs, *node.outputs)
        if value is not None
    )


def _memory(model: ir.Model) -> int:
    """The most that is there at once, when values go after their last use."""
    last: dict[ir.Value, ir.Node] = {}
    for node in model.graph:
        last.update((value, node) for value in node.inputs if value is not None)
    now = most = sum(_bytes(value) for value in model.graph.inputs)
    for node in model.graph:
        now += sum(_bytes(value) for value in node.outputs)
        most = max(most, now)
        now -= sum(
            _bytes(value)
            for value in {value for value in node.inputs if value is not None}
            if last[value] is node and value.producer() is not None and not value.is_graph_output()
        )
    return most


def _bytes(value: ir.Value) -> int:
    dims = dims_of(value)
    if dims is None or None in dims or value.dtype is None or value.dtype == ir.DataType.STRING:
        return 0
    return math.ceil(math.prod(max(0, dim or 0) for dim in dims) * value.dtype.itemsize)
