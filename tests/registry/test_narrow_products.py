"""precision="bf16" and "weights-bf16" on op graphs: which operands are narrowed, where casts stand, what is computed."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ortisan.registry.builder import Builder
from ortisan.registry.dims import symbol
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.evaluate import evaluate_graph
from ortisan.registry.graph import Graph, TensorType, Value
from ortisan.registry.ops import Attention, Concatenate, Gemm
from ortisan.registry.passes.narrow_products import narrow_products
from tests.ops.arrays import values

B, S = symbol("b"), symbol("s")
F32 = DType.FLOAT32


def rounded(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def product_graph() -> tuple[Graph, Array, Array]:
    """gelu(x w + c), whose product is also an output."""
    b = Builder("product")
    w, c = values(7, 5, seed=1), values(5, seed=2)
    product = b.add(Gemm("rrr", bias=True), b.input("x", TensorType(F32, (B, 7))), b.constant(w, "w"), b.constant(c))
    return b.finish([product, b.elementwise("GELU", product)]), w, c


def attention_graph(*, past: bool) -> Graph:
    """Attention over heads of joined products, as exporters write it; with a past, behind cached keys and values."""
    b = Builder("attention")
    x = b.input("x", TensorType(F32, (B, S, 8)))
    mask = b.input("mask", TensorType(F32, (B, 1, 1, symbol("t") if past else S)))
    w = values(3, 8, 8, seed=3)

    def heads(index: int) -> Value:
        product = b.add(Gemm("rrr"), x, b.constant(w[index], f"w{index}"))
        return b.permute(b.reshape(product, (B, S, 2, 4)), (0, 2, 1, 3))

    q, k, v = map(heads, range(3))
    if past:
        cached = [b.input(name, TensorType(F32, (B, 2, symbol("t") - S, 4))) for name in ("k", "v")]
        k, v = (b.add(Concatenate(2), old, new) for old, new in zip(cached, (k, v), strict=True))
    y = b.reshape(b.permute(b.add(Attention(0.002, "additive"), q, k, v, mask), (0, 2, 1, 3)), (B, S, 8))
    return b.finish([b.add(Gemm("rrr"), y, b.constant(values(8, 6, seed=4), "o"))])


def listed(graph: Graph) -> list[str]:
    return [f"{node.op.name}:{node.output.dtype.value}" for node in graph.nodes]


def test_both_operands_are_rounded_and_the_rest_is_float32() -> None:
    graph, w, c = product_graph()
    narrowed = narrow_products(graph, "bf16")
    assert listed(narrowed) == ["cast.bfloat16:bfloat16", "gemm_rrr_bias:float32", "elementwise.gelu:float32"]
    x = values(3, 7, seed=5)
    exact = rounded(x).astype(np.float64) @ rounded(w).astype(np.float64) + c
    np.testing.assert_array_equal(evaluate_graph(narrowed, [x])[0], exact.astype(np.float32))


def test_weights_alone_are_rounded() -> None:
    graph, w, c = product_graph()
    narrowed = narrow_products(graph, "weights-bf16")
    assert listed(narrowed) == ["gemm_rrr_bias:float32", "elementwise.gelu:float32"]
    assert narrowed.nodes[0].inputs[1].dtype is DType.BFLOAT16
    x = values(3, 7, seed=5)
    exact = x.astype(np.float64) @ rounded(w).astype(np.float64) + c
    np.testing.assert_array_equal(evaluate_graph(narrowed, [x])[0], exact.astype(np.float32))


def test_keep_is_the_same_graph() -> None:
    graph, _, _ = product_graph()
    assert narrow_products(graph, "keep") is graph


def test_casts_stand_where_values_are_computed_and_widened_ones_are_taken_as_they_were() -> None:
    narrowed = narrow_products(attention_graph(past=False), "bf16")
    assert [kind for kind in listed(narrowed) if not kind.startswith(("reshape", "permute"))] == [
        "cast.bfloat16:bfloat16",  # x, once for the three products
        *["gemm_rrr:float32"] * 3,
        *["cast.bfloat16:bfloat16"] * 3,
        "attention:bfloat16",
        "gemm_rrr:float32",
    ]
    mask = next(node for node in narrowed.nodes if isinstance(node.op, Attention)).inputs[3]
    assert mask.dtype is F32


def test_attention_over_a_past_stays_as_it_is() -> None:
    narrowed = narrow_products(attention_graph(past=True), "bf16")
    attention = next(node for node in narrowed.nodes if isinstance(node.op, Attention))
    assert {value.dtype for value in attention.inputs} == {F32}


@pytest.mark.parametrize("precision", ["bf16", "weights-bf16"])
@pytest.mark.parametrize("past", [False, True])
def test_results_are_near(precision: str, past: bool) -> None:
    graph = attention_graph(past=past)
    inputs = [values(2, 5, 8, seed=6), values(2, 1, 1, 5 + 3 * past, seed=7)]
    inputs += [values(2, 2, 3, 4, seed=8), values(2, 2, 3, 4, seed=9)] if past else []
    have, want = evaluate_graph(narrow_products(graph, precision), inputs)[0], evaluate_graph(graph, inputs)[0]
    assert have.dtype == np.float32
    assert 0 < np.abs(have - want).max() <= 2e-2 * np.abs(want).max()
