"""The builder makes equal nodes once."""

from __future__ import annotations

import math

from ortisan.registry.builder import Builder
from ortisan.registry.dims import symbol
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import TensorType
from ortisan.registry.ops import Arange, Full, Split

S = symbol("s")


def _builder() -> Builder:
    b = Builder("g")
    b.input("x", TensorType(DType.FLOAT32, (S, 4)))
    return b


def test_equal_nodes_are_one() -> None:
    b = _builder()
    steps = [b.cast(b.add(Arange(0, 1, S, DType.INT64)), DType.FLOAT32) for _ in range(2)]
    assert steps[0] is steps[1]
    assert len(b.nodes) == 2


def test_nodes_with_other_inputs_or_attributes_stay_apart() -> None:
    b = _builder()
    x = b.inputs[0]
    y = b.elementwise("EXP", x)
    assert b.elementwise("EXP", y) is not y
    assert b.elementwise("LRELU", x, params=(0.1,)) is not b.elementwise("LRELU", x, params=(0.2,))
    assert b.add(Arange(0, 1, S, DType.INT64)) is not b.add(Arange(0, 1, S, DType.INT32))


def test_zeros_of_both_signs_stay_apart() -> None:
    b = _builder()
    zeros = [b.add(Full((S,), number, DType.FLOAT32)) for number in (0.0, -0.0)]
    signs = [math.copysign(1, node.op.value) for node in b.nodes if isinstance(node.op, Full)]
    assert zeros[0] is not zeros[1]
    assert signs == [1, -1]


def test_all_outputs_of_a_node_are_shared() -> None:
    b = _builder()
    pieces = [b.add_many(Split(1, (1, 3)), b.inputs[0]) for _ in range(2)]
    assert pieces[0] == pieces[1]
    assert len(b.nodes) == 1


def test_what_the_first_node_assumed_is_still_checked() -> None:
    b = Builder("g")
    x, y = (b.input(name, TensorType(DType.FLOAT32, (symbol(name),))) for name in ("p", "q"))
    b.origin = "first"
    b.elementwise("ADD", x, y)
    b.origin = "second"
    graph = b.finish([b.elementwise("ADD", x, y)])
    assert [(guard.kind, guard.where) for guard in graph.guards] == [("broadcastable", "first")]
