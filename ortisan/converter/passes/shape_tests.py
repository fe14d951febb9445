"""Evaluates tests on shapes whose result is the same for every shape.

Exporters guard an Expand with `Where(Equal(shape, -1), 1, shape)`. A dim is never negative, so the Equal is known
although the shape is not, and the Where becomes a plain choice of elements. Shape inference sees through the rest.
"""

from __future__ import annotations

import json
import re

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_shape_inference import SYM_DATA_KEY

from ortisan.converter.passes.origin import set_origins

Array = npt.NDArray[np.generic]

Element = int | ir.SymbolicDim
# Sums and products of dims and numbers.
_NOT_NEGATIVE = re.compile(r"[\w +*]+")


def decide_shape_tests(model: ir.Model) -> int:
    """Replaces decidable Equal nodes by constants, and Where nodes of a known condition by what they choose."""
    count = 0
    for graph in model.graphs():
        for node in list(graph):
            if node.domain == "" and node.op_type == "Equal":
                count += _decide_equal(node, graph)
            elif node.domain == "" and node.op_type == "Where":
                count += _choose_elements(node, graph)
            elif node.domain == "" and node.op_type in _SHAPE_OPS:
                count += _settle(node, graph)
    return count


_SHAPE_OPS = frozenset({"Shape", "Size", "Gather", "Slice", "Squeeze", "Unsqueeze", "Concat"})


def _settle(node: ir.Node, graph: ir.Graph) -> bool:
    """Replaces shape elements that are the same for every shape by a constant."""
    output = node.outputs[0]
    known = elements(output)
    if known is None or output.dtype != ir.DataType.INT64 or output.shape is None or output.is_graph_output():
        return False
    if any(not isinstance(item, int) for item in known) or output.const_value is not None:
        return False
    _replace_by_constant(node, np.array(known, np.int64).reshape([] if output.shape.rank() == 0 else [-1]), graph)
    return True


def elements(value: ir.Value | None) -> list[Element] | None:
    """The elements of an integer scalar or vector, as far as they are numbers or expressions of symbols; else None."""
    if value is None or value.shape is None or value.shape.rank() > 1:
        return None
    if value.const_value is not None:
        array = value.const_value.numpy()
        return [int(number) for number in array.reshape(-1)] if np.issubdtype(array.dtype, np.integer) else None
    recorded = value.metadata_props.get(SYM_DATA_KEY)
    if recorded is None:
        return None
    return [item if isinstance(item, int) else _element(item) for item in json.loads(recorded)]


def _element(text: str) -> Element:
    dim = ir.SymbolicDim(text)
    number = None if dim.free_symbols() else dim.evaluate({})
    return dim if number is None else number


def _decide_equal(node: ir.Node, graph: ir.Graph) -> bool:
    a, b = elements(node.inputs[0]), elements(node.inputs[1])
    output = node.outputs[0]
    if a is None or b is None or output.shape is None or output.is_graph_output() or not a or not b:
        return False
    if len(a) != len(b) and 1 not in (len(a), len(b)):
        return False
    length = max(len(a), len(b))
    answers = [_equal(a[i % len(a)], b[i % len(b)]) for i in range(length)]
    if any(answer is None for answer in answers):
        return False
    array = np.array(answers, dtype=np.bool_).reshape([] if output.shape.rank() == 0 else [length])
    _replace_by_constant(node, array, graph)
    return True


def _replace_by_constant(node: ir.Node, array: Array, graph: ir.Graph) -> None:
    name = f"{node.outputs[0].name}_decided"
    tensor = ir.tensor(array, name=name)
    constant = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
    graph.register_initializer(constant)
    node.outputs[0].replace_all_uses_with(constant)
    graph.remove(node, safe=True)


def _equal(a: Element, b: Element) -> bool | None:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if isinstance(a, ir.SymbolicDim) and isinstance(b, ir.SymbolicDim):
        return True if a == b and a.value is not None else None
    number, dim = (a, b) if isinstance(a, int) else (b, a)
    if isinstance(number, int) and number < 0 and isinstance(dim, ir.SymbolicDim) and dim.value is not None:
        return False if _NOT_NEGATIVE.fullmatch(dim.value) else None
    return None


def _choose_elements(node: ir.Node, graph: ir.Graph) -> bool:
    """Where(known condition, x, y) on integer vectors -> Concat of single elements of x and y."""
    condition, x, y = node.inputs
    if condition is None or x is None or y is None or condition.const_value is None:
        return False
    shapes = [value.shape for value in (condition, x, y)]
    length = condition.const_value.size
    if any(shape is None or shape.rank() != 1 or shape[0] != length for shape in shapes) or length == 0:
        return False
    if x.dtype != ir.DataType.INT64 or node.outputs[0].is_graph_output():
        return False
    choices = condition.const_value.numpy()
    if choices.all() or not choices.any():
        ir.convenience.replace_all_uses_with(node.outputs[0], x if choices.all() else y)
        graph.remove(node, safe=True)
        return True
    pieces = []
    for index, taken in enumerate(choices):
        name = f"{node.name}_index_{index}"
        position = ir.Value(
            name=name,
            type=ir.TensorType(ir.DataType.INT64),
            shape=ir.Shape([1]),
            const_value=ir.tensor(np.array([index], np.int64), name=name),
        )
        graph.register_initializer(position)
        pieces.append(
            ir.node("Gather", [x if taken else y, position], {"axis": 0}, name=f"{node.name}_element_{index}")
        )
    joined = ir.node("Concat", [piece.outputs[0] for piece in pieces], {"axis": 0}, name=f"{node.name}_chosen")
    for number, new in enumerate((*pieces, joined)):
        set_origins(new, [node])
        new.outputs[0].name = f"{node.name}_choice_{number}"
    ir.convenience.replace_nodes_and_values(graph, node, [node], [*pieces, joined], node.outputs, joined.outputs)
    return True
