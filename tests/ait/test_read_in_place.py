"""Attention, rotary embeddings, caches and gates read where products wrote: what is left of moves, and what it means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ortisan.codegen.ait.chain import Chain
from ortisan.codegen.ait.dialect import to_dialect
from ortisan.codegen.ait.prepare import arrange, write_calls
from ortisan.codegen.ait.strided_ops import StridedAttention, StridedCacheWrite, StridedRotary, StridedRows
from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, symbol
from ortisan.registry.dtypes import DType
from ortisan.registry.evaluate import evaluate_graph
from ortisan.registry.graph import Graph, Op, TensorType, Value
from ortisan.registry.ops import (
    Attention,
    CacheWrite,
    Concatenate,
    DynamicSlice,
    Elementwise,
    Expand,
    Gemm,
    Permute,
    Reshape,
    Rotary,
    Split,
)
from tests.ops.arrays import values
from tests.tolerances import CLOSE

B, S, P = symbol("b"), symbol("s"), symbol("p")
SIZES = {"b": 2, "s": 5, "p": 3}
HEADS = (0, 2, 1, 3)


class Writer(Builder):
    """With inputs by shape, and the arrays that they are run on."""

    def __init__(self) -> None:
        super().__init__("placed")
        self.origin = "node"
        self.arrays: list[np.ndarray[Any, Any]] = []

    def tensor(self, *shape: Dim, kind: DType = DType.FLOAT32) -> Value:
        sizes = [
            dim if isinstance(dim, int) else int(dim.subs({symbol(n): v for n, v in SIZES.items()})) for dim in shape
        ]
        array = values(*sizes, seed=len(self.arrays))
        self.arrays.append(array > 0 if kind is DType.BOOL else array)
        return self.input(f"x{len(self.inputs)}", TensorType(kind, shape))

    def projected(self, x: Value, heads: Sequence[int]) -> list[Value]:
        """[B,H,S,8] of each of these numbers of heads, all columns of one product."""
        width = 8 * sum(heads)
        y = self.add(Gemm("rcr"), x, self.constant(values(width, x.shape[-1], seed=9), "w"))
        parts = self.add_many(Split(2, tuple(8 * count for count in heads)), y)
        split = (self.reshape(part, (B, S, count, 8)) for part, count in zip(parts, heads, strict=True))
        return [self.permute(part, HEADS) for part in split]

    def graph(self, *outputs: Value) -> Graph:
        return self.finish(outputs, bounds={"b": (1, 4), "s": (1, 8), "p": (0, 8)})


def placed(b: Writer, *outputs: Value) -> dict[type[Op], int]:
    """The ops that are left, after a check that they compute the same and can be written as calls."""
    graph = b.graph(*outputs)
    dialect = to_dialect(graph)
    assert not dialect.refused
    done = arrange(dialect.graph)
    assert not write_calls(done)[1]
    for have, want in zip(evaluate_graph(done, b.arrays), evaluate_graph(graph, b.arrays), strict=True):
        np.testing.assert_allclose(have, want, CLOSE, CLOSE)
    kinds = [type(node.op) for node in done.nodes]
    return {kind: kinds.count(kind) for kind in kinds}


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_between_two_products_no_move_is_left(kv_heads: int) -> None:
    b = Writer()
    q, k, v = b.projected(b.tensor(B, S, 16), (4, kv_heads, kv_heads))
    y = b.reshape(b.permute(b.add(Attention(0.3), q, k, v), HEADS), (B, S, 32))
    found = placed(b, b.add(Gemm("rcr"), y, b.constant(values(16, 32), "w")))
    assert found == {Gemm: 2, StridedAttention: 1, Reshape: 1}


def test_a_result_that_is_read_by_heads_is_written_so() -> None:
    b = Writer()
    y = b.add(Attention(0.3), *b.projected(b.tensor(B, S, 16), (4, 4, 4)))
    assert placed(b, y, b.permute(y, HEADS)) == {Gemm: 1, StridedAttention: 1, Permute: 1}


def test_rows_whose_elements_are_apart_are_copied() -> None:
    b = Writer()
    x = b.tensor(B, 4, 8, S)
    turned = b.permute(x, (0, 1, 3, 2))
    assert placed(b, b.add(Attention(0.3), turned, turned, turned)) == {Permute: 1, StridedAttention: 1}


def test_a_past_and_new_rows_are_two_parts_and_joined_for_the_output_only() -> None:
    b = Writer()
    q, k, v = b.projected(b.tensor(B, S, 16), (4, 4, 4))
    keys, both = (b.add(Concatenate(2), b.tensor(B, 4, P, 8), part) for part in (k, v))
    y = b.add(Attention(0.3, causal="lower_right"), q, keys, both)
    assert placed(b, y, keys) == {Gemm: 1, StridedRows: 1, StridedAttention: 1}


def test_a_past_of_another_length_is_joined_first() -> None:
    b = Writer()
    q, k = b.tensor(B, 4, S, 8), b.tensor(B, 4, P, 8)
    v = b.add(Concatenate(2), b.tensor(B, 4, S, 8), b.tensor(B, 4, P, 8))
    keys = b.add(Concatenate(2), k, b.tensor(B, 4, S, 8))
    found = placed(b, b.add(Attention(0.3), q, keys, v))
    assert found == {Concatenate: 2, StridedAttention: 1}


@pytest.mark.parametrize("shape", [(B, 1, 1, S), (S, S), (1, S), (B, 4, S, 1)], ids=str)
def test_a_mask_is_repeated_and_not_expanded(shape: tuple[Dim, ...]) -> None:
    b = Writer()
    q, k, v = b.projected(b.tensor(B, S, 16), (4, 4, 4))
    mask = b.add(Expand((B, 4, S, S)), b.tensor(*shape, kind=DType.BOOL))
    assert placed(b, b.add(Attention(0.3, "boolean"), q, k, v, mask)) == {Gemm: 1, StridedAttention: 1}


def test_rotary_embeddings_read_columns() -> None:
    b = Writer()
    (x,) = b.projected(b.tensor(B, S, 16), (4,))
    wide = b.add(Gemm("rcr"), b.tensor(B, S, 16), b.constant(values(64, 16), "w"))
    y = b.permute(b.reshape(b.add_many(Split(2, (32, 32)), wide)[1], (B, S, 4, 8)), HEADS)
    cos, sin = b.tensor(S, 4), b.tensor(B, 1, S, 4)
    turned = [b.add(Rotary(8), part, cos, sin) for part in (x, y)]
    assert placed(b, *turned) == {Gemm: 2, StridedRotary: 2}


def test_a_cache_is_written_from_columns_and_read_up_to_its_length() -> None:
    b = Writer()
    q, k, v = b.projected(b.tensor(B, S, 16), (4, 4, 4))
    caches = [b.add(CacheWrite(2, start=2), b.tensor(B, 4, 16, 8), part) for part in (k, v)]
    valid = [b.add(DynamicSlice((0,) * 4, (B, 4, S + 2, 8), (1,) * 4), cache) for cache in caches]
    y = b.add(Attention(0.3, causal="lower_right"), q, *valid)
    assert placed(b, y, *caches) == {Gemm: 1, StridedCacheWrite: 2, StridedAttention: 1}


def halves(b: Writer) -> tuple[Value, Value]:
    x = b.tensor(B, S, 16)
    gate, up = (b.add(Gemm("rcr"), x, b.constant(values(8, 16, seed=seed), "w")) for seed in (1, 2))
    return gate, up


def test_a_gate_is_one_chain_over_the_halves_of_one_product() -> None:
    b = Writer()
    gate, up = halves(b)
    gated = b.elementwise("MUL", b.elementwise("MUL", gate, b.elementwise("SIGMOID", gate)), up)
    assert placed(b, gated) == {Gemm: 1, Chain: 1}


def test_a_half_that_something_else_reads_is_split_off() -> None:
    b = Writer()
    gate, up = halves(b)
    gated = b.elementwise("MUL", b.elementwise("MUL", gate, b.elementwise("SIGMOID", gate)), up)
    again = b.add(Gemm("rcr"), up, b.constant(values(4, 8, seed=3), "w"))
    assert placed(b, gated, again) == {Gemm: 2, Split: 1, Elementwise: 3}


def test_a_function_that_alone_reads_a_product_stays_its_epilogue() -> None:
    b = Writer()
    gate, up = halves(b)
    gated = b.elementwise("MUL", b.elementwise("SIGMOID", gate), up)
    assert placed(b, gated) == {Gemm: 2, Elementwise: 2}
