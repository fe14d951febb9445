"""Brings a model into canonical form: plain ONNX ops with known shapes, plus the fused ops of the private domain.

The order of the passes is the body of `canonicalize`. The meaning of the model, its inputs and outputs, their names
and their order never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

import onnx_ir as ir

from ortisan.converter.fuse import fuse_patterns
from ortisan.converter.passes import cleanup
from ortisan.converter.passes.fold import fold_constants
from ortisan.converter.passes.freeze import freeze_overridable, overridable
from ortisan.converter.passes.infer import infer_shapes
from ortisan.converter.passes.inline import inline_functions
from ortisan.converter.passes.loop_constants import release_carried
from ortisan.converter.passes.near_miss import NearMiss
from ortisan.converter.passes.opaque import has_failures
from ortisan.converter.passes.optional import OptionalPasses, PassFailed
from ortisan.converter.passes.origin import name_nodes, record_origins
from ortisan.converter.passes.quiet import quiet_libraries
from ortisan.converter.passes.second_opinion import contradiction
from ortisan.converter.passes.shape_tests import decide_shape_tests
from ortisan.converter.read.labels import free_dims
from ortisan.converter.read.load import copy_model
from ortisan.converter.read.symbols import Bounds, fix_dims, name_symbols
from ortisan.converter.unfuse import unfuse_contrib_ops
from ortisan.errors import ModelError, OrtisanError
from ortisan.registry.surprise import Surprise, surprises

__all__ = ["Canonical", "NearMiss", "canonicalize"]

# From this IR version on, an initializer that is also a graph input is a default that the caller may override.
_OVERRIDABLE_IR_VERSION = 4

_MAX_ROUNDS = 10


@dataclass(frozen=True)
class Canonical:
    """A model in canonical form, the number of changes by each pass, and the reasons of near misses."""

    model: ir.Model
    counts: Mapping[str, int]
    near_misses: tuple[NearMiss, ...]
    symbols: Mapping[str, str]
    """Symbol in the canonical model -> its name in the caller's model."""

    def __repr__(self) -> str:
        changed = ", ".join(f"{name} {count}" for name, count in self.counts.items() if count)
        nodes = sum(1 for _ in self.model.graph)
        return f"Canonical({nodes} nodes; {changed or 'nothing changed'}; {len(self.near_misses)} near misses)"


def canonicalize(
    model: ir.Model, *, dims: Bounds | None = None, frozen: Callable[[ir.Node], bool] | None = None
) -> Canonical:
    """Brings `model` into canonical form. It is used up: only the result's model is of use afterwards.

    `dims` fixes symbolic dims ({"batch": 1}) or frees them of their name ({"width": "free"}); ranges ({"seq":
    (1, 512)}) are only checked here. A node for which `frozen` is true takes part in no unfusing, merging or fusing.
    Raises an `OrtisanError`.
    """
    pristine, optional = copy_model(model), OptionalPasses()
    with quiet_libraries():
        while True:
            try:
                with surprises(OrtisanError, PassFailed):
                    return _canonicalize(model, dims or {}, frozen or (lambda node: False), optional)
            except PassFailed:
                model = copy_model(pristine)
            except Surprise as surprise:
                raise ModelError(f"the model can't be analysed ({surprise})") from surprise


def _canonicalize(
    model: ir.Model, dims: Bounds, frozen: Callable[[ir.Node], bool], optional: OptionalPasses
) -> Canonical:
    counts: dict[str, int] = {}
    output_names = [value.name for value in model.graph.outputs]
    record_origins(model)
    symbols = name_symbols(model)
    counts["fix dims"] = fix_dims(model, free_dims(model, dims, symbols), symbols)
    counts["inline functions"] = inline_functions(model)
    cleanup.settle_keepdims(model)
    with _overridable_as_inputs(model):
        counts["lift constants"] = optional.run("lift constants", lambda: cleanup.lift_constants(model), 0)
        counts["take out of loops"] = optional.run("take out of loops", lambda: release_carried(model), 0)
        infer_shapes(model)
        if has_failures(model) and (reason := contradiction(model)) is not None:
            raise ModelError(f"shapes can't be inferred: {reason}")
        unfused, refusals = unfuse_contrib_ops(model, frozen)
        counts.update(unfused)
        if any(unfused.values()):
            infer_shapes(model)
        failures = _simplify(model, frozen, counts, optional)
        fused, near_misses = fuse_patterns(model, frozen, optional)
        counts.update(fused)
        counts["remove unused"] += cleanup.remove_unused(model)
        infer_shapes(model)
    _restore_outputs(model, output_names)
    name_nodes(model)
    misses = tuple(dict.fromkeys((*refusals, *failures, *near_misses, *optional.near_misses)))
    return Canonical(model, MappingProxyType(counts), misses, MappingProxyType(symbols))


def _simplify(
    model: ir.Model, frozen: Callable[[ir.Node], bool], counts: dict[str, int], optional: OptionalPasses
) -> list[NearMiss]:
    """Folds and cleans up to a fixed point: a constant can determine a shape, which can determine the next constant.

    Returns what could not be folded.
    """
    failures: list[NearMiss] = []
    passes: dict[str, Callable[[], int]] = {
        "fold constants": lambda: fold_constants(model, failures),
        "lift constants": lambda: cleanup.lift_constants(model),
        "decide shape tests": lambda: decide_shape_tests(model),
        "remove unused": lambda: cleanup.remove_unused(model),
        "remove identities": lambda: cleanup.remove_identities(model),
        "merge equal nodes": lambda: cleanup.merge_equal_nodes(model, frozen),
        "order operands": lambda: cleanup.order_operands(model, frozen),
    }
    for _ in range(_MAX_ROUNDS):
        changes = {name: optional.run(name, run, 0) for name, run in passes.items()}
        for name, count in changes.items():
            counts[name] = counts.get(name, 0) + count
        if not any(changes.values()):
            break
        infer_shapes(model)
    return failures


@contextmanager
def _overridable_as_inputs(model: ir.Model) -> Iterator[None]:
    """Hides the values of initializers that a caller may override, so that no pass takes them for constants.

    Their symbolic dims are forgotten: a default has a size of its own, whatever the other inputs' sizes are. Before IR
    version 4 every initializer had to be an input and none can be overridden, so those inputs are removed.
    """
    graph = model.graph
    if model.ir_version < _OVERRIDABLE_IR_VERSION:
        freeze_overridable(model)
        model.ir_version = _OVERRIDABLE_IR_VERSION
    hidden = overridable(graph)
    tensors = [value.const_value for value in hidden]
    for value in hidden:
        graph.initializers.pop(value.name or "")
        value.const_value = None
        if value.shape is not None:
            value.shape = ir.Shape([dim if isinstance(dim, int) else None for dim in value.shape])
    try:
        yield
    finally:
        for value, tensor in zip(hidden, tensors, strict=True):
            value.const_value = tensor
            graph.register_initializer(value)


def _restore_outputs(model: ir.Model, names: list[str | None]) -> None:
    """Adds an Identity for each graph output that a pass left under another name."""
    for index, name in enumerate(names):
        output = model.graph.outputs[index]
        if output.name != name:
            node = ir.node("Identity", [output])
            node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = name, output.type, output.shape
            model.graph.append(node)
            model.graph.outputs[index] = node.outputs[0]
