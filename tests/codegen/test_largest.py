"""Which values bound the sizes of a graph."""

from __future__ import annotations

import numpy as np
import pytest

import ortisan
from ortisan.codegen.largest import largest_values
from ortisan.registry.graph import Graph
from tests.models.text import text_model

W = {"w": np.ones((8, 64), np.float32)}


def graph_of(signature: str, body: str) -> Graph:
    constants = W if "w" in body else {}
    (plan,) = ortisan.compile(text_model(signature, body, constants=constants), whole_graph=True, tune="off").plans
    return plan.graph


def shapes(graph: Graph) -> list[tuple[str, ...]]:
    return [tuple(map(str, value.shape)) for value in largest_values(graph)]


@pytest.mark.parametrize(
    "signature, body, expected",
    [
        ("(float[A,B] x) => (float[A,B] y)", "a = Exp(x) y = Neg(a)", [("A", "B")]),
        ("(float[A,8] x) => (float y)", "a = MatMul(x, w) y = ReduceSum<keepdims = 0>(a)", [("A", "64")]),
        ("(float[A,B] x) => (float[B,A] y)", "y = Transpose(x)", [("A", "B")]),
        ("(float[A,1] x, float[1,B] y) => (float[A,B] z)", "z = Add(x, y)", [("A", "B")]),
        ("(float[A] x, float[B] y) => (float[A] p, float[B] q)", "p = Exp(x) q = Exp(y)", [("A",), ("B",)]),
        ("(float[3,4] x) => (float[3,4] y)", "y = Exp(x)", []),
    ],
)  # fmt: skip
def test_what_is_never_the_largest_is_left_out(signature: str, body: str, expected: list[tuple[str, ...]]) -> None:
    assert shapes(graph_of(signature, body)) == expected


def test_the_larger_element_counts() -> None:
    graph = graph_of("(float[A] x) => (double[A] y)", "y = Cast<to = 11>(x)")
    assert [value.dtype.size for value in largest_values(graph)] == [8]


def test_a_fixed_size_that_no_memory_holds_is_kept() -> None:
    """It is refused in every call."""
    graph = graph_of(f"(float[{2**50}, 0] x) => (float[{2**50}, 0] y)", "y = Exp(x)")
    assert shapes(graph) == [(str(2**50), "0")]
