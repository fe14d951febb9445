"""Symbolic shape inference: every value gets the type and shape that follow from the graph inputs.

Declared shapes of intermediate values are hints that may be stale, so they count only for ops that no rule knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import onnx_ir as ir
import sympy
from onnx_shape_inference import infer_symbolic_shapes, registry

from ortisan.converter.passes.body_shapes import forget_body_inputs
from ortisan.converter.passes.loop_shapes import CarriedShapes
from ortisan.converter.passes.opaque import opaque_failures
from ortisan.converter.passes.own_rules import register_own_rules
from ortisan.converter.read.symbols import ascending
from ortisan.registry.surprise import Surprise, surprises


def infer_shapes(model: ir.Model) -> None:
    """Sets type and shape of every value in place, as far as they follow from the graph's inputs and constants.

    A node that the library fails on is opaque: see `passes.opaque`.
    """
    register_own_rules()
    values = [value for graph in model.graphs() for node in graph for value in node.outputs]
    before = {value: value.shape for value in values}
    found = {value: (value.type, value.const_value, dict(value.metadata_props)) for value in values}
    carried = CarriedShapes(model)
    forget_body_inputs(model)
    try:
        _infer_once(model, before)
        while carried.mend():
            forget_body_inputs(model, scan_only=True)
            for value, (kind, constant, notes) in found.items():
                value.type, value.const_value = kind, constant
                value.metadata_props.clear()
                value.metadata_props.update(notes)
            _infer_once(model, before)
    finally:
        carried.restore()
    for graph in model.graphs():
        for node in graph:
            for value in node.outputs:
                if value.shape is not None and any(_is_number(dim) for dim in value.shape):
                    value.shape = ir.Shape([dim.evaluate({}) if _is_number(dim) else dim for dim in value.shape])
    _settle_minima(model)


def _infer_once(model: ir.Model, before: Mapping[ir.Value, ir.Shape | None]) -> None:
    """Infers from the graph inputs and from earlier shapes of values made by ops that have no rule.

    A failure outside of all rules ends the inference there: what was not reached stays unknown.
    """
    for value, shape in before.items():
        value.shape = None if _has_rule(value) else shape
    try:
        with surprises(), opaque_failures():
            infer_symbolic_shapes(model, warn_on_missing=False, adopt_declared_symbols=False)
    except Surprise:
        return


def _has_rule(value: ir.Value) -> bool:
    node = value.producer()
    return node is not None and (node.domain == "" or registry.has(node.domain, node.op_type))


def _settle_minima(model: ir.Model) -> None:
    """Simplifies min(a, b) to a if the model declares a <= b, as for the filled part of a cache."""
    order = ascending(model)
    for graph in model.graphs() if order else ():
        for node in graph:
            for value in node.outputs:
                if value.shape is not None and any("Min" in str(dim) for dim in value.shape):
                    value.shape = ir.Shape([_settle_minimum(dim, order) for dim in value.shape])


def _settle_minimum(dim: int | ir.SymbolicDim, order: Sequence[str]) -> int | ir.SymbolicDim:
    if isinstance(dim, int) or dim.value is None:
        return dim
    parsed: Any = dim._expr  # the parsed form of dim.value; onnx-ir has no public name for it
    found = parsed.replace(
        lambda part: isinstance(part, sympy.Min) and all(str(argument) in order for argument in part.args),
        lambda part: min(part.args, key=lambda argument: order.index(str(argument))),
    )
    return int(found) if isinstance(found, sympy.Integer) else ir.SymbolicDim(found)


def _is_number(dim: int | ir.SymbolicDim) -> TypeGuard[ir.SymbolicDim]:
    """Whether a computed dim is the same for all values of its symbols, as in 64*s // 16*s."""
    return isinstance(dim, ir.SymbolicDim) and dim.value is not None and not dim.free_symbols()
