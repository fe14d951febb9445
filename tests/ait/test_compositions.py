"""What ops are composed of means what they mean: the rewritten graph and the graph, both evaluated in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ortisan.codegen.ait.barriers import set_barriers
from ortisan.codegen.ait.chain import Chain
from ortisan.codegen.ait.dialect import to_dialect
from ortisan.codegen.ait.join_products import join_products
from ortisan.codegen.ait.prepare import arrange
from ortisan.registry.builder import Builder
from ortisan.registry.dims import symbol
from ortisan.registry.dtypes import DType
from ortisan.registry.evaluate import evaluate_graph
from ortisan.registry.graph import Graph, TensorType, Value
from ortisan.registry.ops import Attention, Elementwise, Gemm, Reduce, Reshape, Split
from ortisan.registry.passes.narrow import narrow
from ortisan.registry.verify import verify_graph
from tests.ait.every_op import DYNAMIC_ONLY, GRAPHS, every_op
from tests.ait.interpreted import difference
from tests.ait.op_cases import Written
from tests.ops import test_attention
from tests.ops.arrays import values
from tests.tolerances import CLOSE, HALF, HALF_SOFTMAX

CASES = {case.name: case for dynamic in (False, True) for case in every_op(dynamic=dynamic)}


def same(graph: Graph, changed: Graph, inputs: Any, limit: float = CLOSE) -> None:
    verify_graph(changed)
    for have, want in zip(evaluate_graph(changed, inputs), evaluate_graph(graph, inputs), strict=True):
        assert difference(have, want, graph.name) <= limit


def composed(graph: Graph) -> Graph:
    dialect = to_dialect(graph)
    assert not dialect.refused
    return arrange(dialect.graph)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_op(case: Written) -> None:
    half = any(value.dtype is DType.FLOAT16 for value in case.graph.values())
    same(case.graph, composed(case.graph), list(case.inputs), HALF if half else CLOSE)


def _attention(mask: np.ndarray[Any, Any] | None, keys: int = 9, **options: Any) -> tuple[Graph, list[Any]]:
    """An attention whose number of keys is known at run time, so that they are padded."""
    arrays = [values(2, 4, 5, 8), values(2, 2, keys, 8, seed=1), values(2, 2, keys, 8, seed=2)]
    dims: list[Any] = [(2, 4, 5, 8), (2, 2, symbol("t"), 8), (2, 2, symbol("t"), 8)]
    if mask is not None:
        arrays.append(mask)
        dims.append((*mask.shape[:-1], symbol("t")))
    b = Builder("attention")
    b.origin = "attention"
    inputs = [
        b.input(f"x{i}", TensorType(DType.from_numpy(a.dtype), tuple(d)))
        for i, (a, d) in enumerate(zip(arrays, dims, strict=True))
    ]
    kind = "none" if mask is None else "boolean" if mask.dtype == bool else "additive"
    return b.finish([b.add(Attention(0.3, kind, **options), *inputs)], bounds={"t": (1, 20)}), arrays  # type: ignore[arg-type]


NOTHING_SEEN = np.arange(2 * 5 * 9).reshape(2, 1, 5, 9) % 3 > 0
NOTHING_SEEN[1, :, 2] = False
ADDED = np.where(NOTHING_SEEN, 0.5, -np.inf).astype(np.float32)
LOWEST = np.where(NOTHING_SEEN, 0.5, np.finfo(np.float32).min).astype(np.float32)


@pytest.mark.parametrize(
    ("mask", "options"),
    [
        (None, {"softcap": 0.7}),
        (NOTHING_SEEN, {}),
        (NOTHING_SEEN, {"hidden": -10000.0}),
        (NOTHING_SEEN, {"hidden": -np.inf}),
        (NOTHING_SEEN, {"hidden": -np.inf, "nan_rows_zero": True}),
        (NOTHING_SEEN, {"empty_rows_zero": True}),
        (NOTHING_SEEN, {"empty_rows_zero": True, "softcap": 0.7}),
        (ADDED, {}),
        (ADDED, {"empty_rows_zero": True}),
        (ADDED, {"nan_rows_zero": True}),
        (LOWEST, {}),
        (LOWEST, {"empty_rows_zero": True}),
        (np.zeros((5, 9), bool), {}),
        (np.zeros((1, 9), bool), {"empty_rows_zero": True}),
    ],
)
def test_rows_that_see_no_key_keep_their_meaning(mask: Any, options: dict[str, Any]) -> None:
    graph, arrays = _attention(mask, **options)
    same(graph, composed(graph), arrays)


@pytest.mark.parametrize("case", test_attention.GROUPS, ids=str)
def test_grouped_and_capped_attention(case: Any) -> None:
    dialect = to_dialect(case.graph)
    if dialect.refused:
        (reason,) = dialect.refused.values()
        assert any(word in reason for word in ("causal", "float64", "number", "upper bound"))
    else:
        half = next(iter(case.inputs.values())).dtype == np.float16
        same(case.graph, dialect.graph, list(case.inputs.values()), HALF_SOFTMAX if half else CLOSE)


def _write(*ops: Callable[[Builder, Value], Value]) -> Graph:
    b = Builder("written")
    b.origin = "node"
    x = b.input("x", TensorType(DType.FLOAT32, (symbol("b"), 8)))
    return b.finish([op(b, x) for op in ops], bounds={"b": (1, 4)})


def _weight(b: Builder, n: int, seed: int = 0) -> Value:
    return b.constant(values(n, 8, seed=seed), f"w{seed}")


def test_products_of_one_tensor_become_one_with_the_weights_joined_in_numpy() -> None:
    graph = _write(
        lambda b, x: b.elementwise("EXP", b.add(Gemm("rcr"), x, _weight(b, 4))),
        lambda b, x: b.elementwise("EXP", b.add(Gemm("rcr"), x, _weight(b, 6, 1))),
        lambda b, x: b.elementwise("GELU", b.add(Gemm("rcr"), x, _weight(b, 6, 2))),
    )
    joined = join_products(graph)
    kinds = [type(node.op) for node in joined.nodes]
    assert kinds.count(Gemm) == 2, "a product with a fused epilogue stays by itself"
    assert kinds.count(Split) == 1
    same(graph, joined, [values(3, 8)])


def test_a_bias_joins_its_product_and_a_reshape_before_it_moves_behind() -> None:
    def write(b: Builder, x: Value) -> Value:
        rows = b.reshape(b.reshape(x, (1, symbol("b"), 8)), (symbol("b"), 8))
        y = b.add(Gemm("rrr"), rows, b.constant(values(8, 6), "w"))
        return b.elementwise("ADD", b.constant(values(6, seed=3), "bias"), y)

    graph = _write(write)
    dialect = to_dialect(graph).graph
    assert [node.op.name for node in dialect.nodes if not isinstance(node.op, Reshape)] == ["gemm_rcr_bias"]
    same(graph, dialect, [values(3, 8)])


def test_a_view_stands_between_a_shared_row_and_its_larger_readers() -> None:
    b = Builder("shared")
    b.origin = "node"
    x, row = (b.input(n, TensorType(DType.FLOAT32, s)) for n, s in (("x", (4, 3, 8)), ("row", (4, 1, 8))))
    scale = b.elementwise("EXP", row)
    graph = b.finish([b.elementwise("MUL", x, scale), b.elementwise("ADD", x, scale)])
    barred = set_barriers(graph)
    made = {value: node for node in barred.nodes for value in node.outputs}
    for node in barred.nodes:
        if isinstance(node.op, Elementwise) and node.op.func in ("MUL", "ADD"):
            assert isinstance(made[node.inputs[1]].op, Reshape)
    same(graph, barred, [values(4, 3, 8), values(4, 1, 8)])


def test_half_precision_keeps_the_types_at_the_borders_and_angles_in_single() -> None:
    graph = _write(lambda b, x: b.elementwise("MUL", b.elementwise("COS", b.elementwise("MUL", x, x)), x))
    half = narrow(graph)
    verify_graph(half)
    types = {node.op.name: node.output.dtype for node in half.nodes}
    assert types["elementwise.cos"] is DType.FLOAT32
    assert [value.dtype for value in (*half.inputs, *half.outputs)] == [DType.FLOAT32, DType.FLOAT32]
    assert DType.FLOAT16 in types.values()
    same(graph, half, [values(3, 8)], HALF)


def test_half_precision_hides_with_finite_numbers() -> None:
    graph = _write(lambda b, x: b.elementwise("MUL", x, b.number(-3e38, DType.FLOAT32)))
    (got,) = evaluate_graph(narrow(graph), [np.ones((2, 8), np.float32)])
    assert (got == -65504).all()


def test_long_chains_are_cut() -> None:
    """Each step doubles what is computed of it, so a chain without end would be as long as the model."""
    b = Builder("long")
    b.origin = "long"
    x = b.input("x", TensorType(DType.INT64, (symbol("s"), 3)))
    made = x
    for step in range(500):
        made = b.elementwise("SUB", b.elementwise("MUL", made, b.number(step % 3, DType.INT64)), made)
    graph = b.finish([made, b.cast(made, DType.FLOAT32)], bounds={"s": (1, 8)})
    changed = composed(graph)
    chains = [node.op for node in changed.nodes if isinstance(node.op, Chain)]
    assert len(chains) > 10
    assert max(len(chain.steps) for chain in chains) <= 80
    same(graph, changed, [np.arange(15).reshape(5, 3)])


def test_tensors_of_one_shape_are_one_loop_if_nothing_stands_between() -> None:
    b = Builder("loops")
    b.origin = "loops"
    x = b.input("x", TensorType(DType.INT64, (symbol("s"), 3)))
    first = b.elementwise("ADD", x, b.number(1, DType.INT64))
    sums = b.add(Reduce("sum", 0, 0, True), first)
    second, third = b.elementwise("MUL", x, x), b.elementwise("SUB", first, sums)
    graph = b.finish([first, second, third], bounds={"s": (1, 8)})
    changed = composed(graph)
    assert [len(node.outputs) for node in changed.nodes if isinstance(node.op, Chain)] == [2, 1]
    same(graph, changed, [np.arange(15).reshape(5, 3)])


def test_the_list_is_whole() -> None:
    assert len(CASES) == 2 * len(GRAPHS) - len(DYNAMIC_ONLY)
