"""Infers shapes inside and after a Loop, as far as they hold for any number of iterations.

A dim of a value that is carried from one iteration to the next is known in the body only when the body gives back the
very dim that it takes: what holds before the loop then holds in every iteration. How often the body runs is not known:
a condition may end the loop before its trip count does, and a loop that never runs has outputs, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext

from ortisan.converter.read.bodies import bodies

_CARRIED = 2
"""The first two inputs of a Loop and of its body are the trip count, or the turn, and the condition."""


def infer_loop(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Sets types and shapes of a Loop's outputs. Its trip count and its condition may be absent."""
    body = _body(node)
    if body is None:
        return
    first, given, after = node.inputs[_CARRIED:], body.inputs[_CARRIED:], body.outputs[1:]
    for index, (output, value) in enumerate(zip(node.outputs, after, strict=False)):
        if value.type is not None and not isinstance(value.type, ir.TensorType):
            ctx.set_type(output, value.type)
        elif index >= len(first):
            ctx.set_shape_and_dtype(output, _stacked(ctx, value.shape), value.dtype)
        elif index < len(given):
            ctx.set_shape_and_dtype(output, _steady(ctx, first[index], given[index], value), value.dtype)


def _steady(ctx: ShapeInferenceContext, first: ir.Value | None, given: ir.Value, after: ir.Value) -> ir.Shape | None:
    """The dims that a carried value has before the loop and after every iteration; the others are new symbols."""
    shapes = [None if value is None else value.shape for value in (first, given, after)]
    ranks = {None if shape is None else len(shape) for shape in shapes}
    if None in ranks or len(ranks) > 1:
        return None
    dims = zip(*(shape for shape in shapes if shape is not None), strict=True)
    return ir.Shape([a if a == b == c else ctx.new_symbolic_dim() for a, b, c in dims])


def _stacked(ctx: ShapeInferenceContext, each: ir.Shape | None) -> ir.Shape | None:
    """One axis for the iterations. Without any, ONNX Runtime takes 0 for dims that are not numbers."""
    if each is None:
        return None
    return ir.Shape(
        [ctx.new_symbolic_dim(), *(dim if isinstance(dim, int) else ctx.new_symbolic_dim() for dim in each)]
    )


class CarriedShapes:
    """Finds, inference by inference, what loop bodies wrongly inherited from before the loop.

    A dim that the body changes becomes unknown. A value whose rank changes has to have none while shapes are inferred,
    so the loop reads another value in place of the first one until `restore`.
    """

    def __init__(self, model: ir.Model) -> None:
        self._loops = [node for node in model.graph.all_nodes() if _body(node) is not None]
        self._unknown: set[tuple[ir.Value, int]] = set()
        self._hidden: list[tuple[ir.Node, int, ir.Value]] = []

    def mend(self) -> bool:
        """Corrects types and shapes of what bodies are given; returns whether anything changed."""
        changes = [self._mend(*carried) for node in self._loops for carried in _carried(node)]
        return any([*changes, *(_mend_condition(node) for node in self._loops)])

    def _mend(self, node: ir.Node, index: int, given: ir.Value, after: ir.Value) -> bool:
        first = node.inputs[index]
        if first is None or first.type is None:
            return False
        if not isinstance(first.type, ir.TensorType):
            changed = first.type != given.type
            given.type = first.type
            return changed
        if given.shape is None:
            return False
        if first.shape is None or after.shape is None or not len(first.shape) == len(given.shape) == len(after.shape):
            self._hidden.append((node, index, first))
            node.replace_input_with(index, ir.Value(name=first.name, type=first.type))
            given.shape = None
            return True
        dims = enumerate(zip(first.shape, given.shape, after.shape, strict=True))
        wrong = {axis for axis, (a, b, c) in dims if not a == b == c and (given, axis) not in self._unknown}
        self._unknown |= {(given, axis) for axis in wrong}
        if wrong:
            given.shape = ir.Shape([None if axis in wrong else dim for axis, dim in enumerate(given.shape)])
        return bool(wrong)

    def restore(self) -> None:
        for node, index, value in self._hidden:
            node.replace_input_with(index, value)


def _mend_condition(node: ir.Node) -> bool:
    """After the first turn the body is given the condition as it gave it back, which may have another rank."""
    body = _body(node)
    if body is None or len(body.inputs) < _CARRIED or not body.outputs:
        return False
    given, after = body.inputs[1], body.outputs[0]
    changed = given.shape is not None and given.shape != after.shape
    if changed:
        given.shape = None
    return changed


def _carried(node: ir.Node) -> Iterator[tuple[ir.Node, int, ir.Value, ir.Value]]:
    body = _body(node)
    if body is not None:
        for index, (given, after) in enumerate(zip(body.inputs[_CARRIED:], body.outputs[1:], strict=False), _CARRIED):
            if index < len(node.inputs):
                yield node, index, given, after


def _body(node: ir.Node) -> ir.Graph | None:
    if node.op_type != "Loop" or node.domain != "":
        return None
    return next((graph for name, graph in bodies(node) if name == "body"), None)
