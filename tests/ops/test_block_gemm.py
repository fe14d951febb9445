"""Products with weights of 4 and 8 bits in blocks: as MatMulNBits against ONNX Runtime, and as written op by op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ortisan.registry.builder import Builder
from ortisan.registry.dims import Facts
from ortisan.registry.dtypes import DType
from ortisan.registry.evaluate import evaluate_graph
from ortisan.registry.graph import Graph, TensorType
from ortisan.registry.ops import BlockGemm
from ortisan.registry.refusal import Refused
from tests.ops.arrays import special, values
from tests.ops.harness import Case
from tests.tolerances import WIDE

# Columns below, at, above and off four panels of 16; depths off the blocks; one row, an even and an odd number of them.
SIZES = [(1, 1, 16), (1, 64, 32), (2, 63, 40), (3, 17, 96), (5, 70, 130), (65, 33, 64), (0, 16, 32)]


def weight(columns: int, depth: int, bits: int, block: int, *, zeros: bool) -> dict[str, np.ndarray[Any, Any]]:
    rng, blocks = np.random.default_rng([columns, depth, bits, block]), -(-depth // block)
    made = {
        "w": rng.integers(0, 256, (columns, blocks, block * bits // 8), dtype=np.uint8),
        "s": rng.uniform(0.01, 0.1, (columns, blocks)).astype(np.float32),
    }
    if zeros:
        made["z"] = rng.integers(0, 256, (columns, -(-blocks * bits // 8)), dtype=np.uint8)
    return made


def case(rows: int, columns: int, depth: int, bits: int, block: int, level: int) -> Case:
    constants = weight(columns, depth, bits, block, zeros=(columns + depth) % 2 == 1)
    x = values(2, rows, depth) if columns > 16 else values(rows, depth)
    attributes = {"K": depth, "N": columns, "bits": bits, "block_size": block, "accuracy_level": level}
    # ONNX Runtime rounds x by other rules, or not at all.
    return Case(
        f"MatMulNBits_{rows}x{columns}x{depth}_{bits}x{block}_{level}",
        "MatMulNBits",
        {"x": x, **constants},
        attributes,
        constants=tuple(constants),
        domain="com.microsoft",
        ort=level != 4,
        tolerance=(WIDE, WIDE * max(depth, 1)),
    )


CASES = [
    case(*size, bits, block, level)
    for size in SIZES
    for bits, block, level in ((4, 32, 1), (8, 16, 1), (4, 16, 4), (8, 64, 4), (2, 32, 4))
]


def graph(x: np.ndarray[Any, Any], bits: int, block: int, *, rounded: bool) -> Graph:
    b = Builder("block_gemm")
    rng, depth = np.random.default_rng(3), x.shape[-1]
    blocks = -(-depth // block)
    q = rng.integers(0, 1 << bits, (37, blocks * block), dtype=np.uint8)
    scale, zero = rng.uniform(0.5, 2, (2, 37, blocks)).astype(np.float32)
    inputs = b.input("x", TensorType(DType.FLOAT32, x.shape)), *map(b.constant, (q, scale, zero))
    return b.finish([b.add(BlockGemm(bits, block, depth, rounded=rounded), *inputs)])


def test_rounding_costs_half_a_step_of_each_block_at_most() -> None:
    x = values(6, 100)
    exact, rounded = (evaluate_graph(graph(x, 8, 32, rounded=rounded), [x])[0] for rounded in (False, True))
    assert 0 < np.abs(exact - rounded).max() <= 2e-2 * np.abs(exact).max()


def test_a_block_that_is_not_finite_spoils_its_row_only() -> None:
    x = special(9, 64)
    y = evaluate_graph(graph(x, 4, 32, rounded=True), [x])[0]
    np.testing.assert_array_equal(np.isnan(y).all(axis=1), ~np.isfinite(x).all(axis=1))


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda: BlockGemm(5, 32, 40), "5 bits in blocks of 32"),
        (lambda: BlockGemm(4, 20, 40), "4 bits in blocks of 20"),
        (lambda: BlockGemm(4, 32, 70), "no 70 rows in whole blocks of 32"),
    ],
)
def test_what_is_not_defined_is_refused(make: Callable[[], BlockGemm], why: str) -> None:
    types = [
        TensorType(DType.FLOAT32, (3, 40)),
        TensorType(DType.UINT8, (5, 64)),
        *[TensorType(DType.FLOAT32, (5, 2))] * 2,
    ]
    with pytest.raises(Refused, match=why):
        make().infer(types, Facts("node"))


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_block_gemm(case: Case, batch: Callable[..., Any]) -> None:
    batch(CASES).check(case)
