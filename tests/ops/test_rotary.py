from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ortisan.registry.builder import Builder
from ortisan.registry.graph import Value
from ortisan.registry.ops import Permute, Rotary, Split
from ortisan.registry.refusal import Refused
from tests.ops.arrays import BFLOAT16, values
from tests.ops.op_graphs import GraphBatch, GraphCase


def _tables(*shape: int, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    angles = values(*shape, dtype=np.float64, seed=3)
    return {"cos": np.cos(angles).astype(dtype), "sin": np.sin(angles).astype(dtype)}


def _case(name: str, shape: tuple[int, ...], size: int, tables: tuple[int, ...], interleaved: bool = False,
          dtype: Any = np.float32, dims: Any = None) -> GraphCase:  # fmt: skip
    def write(b: Builder, *operands: Value) -> Value:
        return b.add(Rotary(size, interleaved), *operands)

    inputs = {"x": values(*shape, dtype=dtype), **_tables(*tables, dtype=dtype)}
    return GraphCase(name, inputs, write, dims or {})


CASES = [
    _case(f"{kind}_{size}_of_{d}", (2, 3, 5, d), size, (1, 1, 5, width), interleaved)
    for d, size in ((2, 2), (8, 8), (16, 16), (34, 34), (64, 64), (80, 32), (7, 6))
    for kind, width, interleaved in (("wide", size, False), ("narrow", size // 2, False), ("paired", size // 2, True))
]
CASES += [
    _case("batch_tables", (2, 3, 5, 16), 16, (2, 1, 5, 16)), _case("head_tables", (2, 3, 5, 16), 16, (3, 1, 8)), _case("one_row", (2, 3, 1, 16), 16, (16,)),
    _case("repeated_rows", (2, 3, 5, 16), 16, (1, 16)), _case("no_rows", (2, 3, 0, 16), 16, (0, 16)), _case("nothing_turned", (1, 2, 3, 4), 0, (3, 0)),
    _case("dynamic", (2, 3, 5, 16), 16, (1, 1, 5, 8), dims={"x": ["b", 3, "s", 16], "cos": ["c", 1, "t", 8], "sin": ["c", 1, "t", 8]}),
    _case("float64", (2, 3, 5, 16), 16, (5, 16), dtype=np.float64), _case("float16", (2, 3, 5, 80), 64, (5, 32), dtype=np.float16),
    _case("bfloat16", (2, 3, 5, 80), 64, (5, 32), dtype=BFLOAT16), _case("paired_float16", (2, 3, 5, 80), 64, (5, 32), True, np.float16),
]  # fmt: skip


def _packed(b: Builder, x: Value, cos: Value, sin: Value) -> list[Value]:
    """Queries and keys out of a packed projection [B, S, 2 * 3 * 16]: no kernel but the rotations."""
    return [
        b.add(
            Rotary(16), b.add(Permute((0, 2, 1, 3)), b.reshape(piece, (2, 5, 3, 16))), b.reshape(cos, (1, 1, 5, 8)), sin
        )
        for piece in b.add_many(Split(2, (48, 48)), x)
    ]


PACKED = GraphCase("packed", {"x": values(2, 5, 96), **_tables(5, 8)}, _packed)
CASES.append(PACKED)
BATCH = GraphBatch(CASES, "rotary")


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_rotary(case: GraphCase) -> None:
    BATCH.check(case)


def test_a_packed_projection_is_read_where_it_is() -> None:
    assert [group.name for group in PACKED.plan.groups] == ["rotary", "rotary"]


def test_the_reference_is_a_rotation() -> None:
    x = np.array([1, 2, 3, 4, 9], np.float32).reshape(1, 1, 1, 5)
    quarter = {"cos": np.zeros((1, 2), np.float32), "sin": np.ones((1, 2), np.float32)}
    for interleaved, expected in ((False, [-3, -4, 1, 2, 9]), (True, [-2, 1, -4, 3, 9])):
        case = GraphCase("q", {"x": x, **quarter}, lambda b, *v, i=interleaved: b.add(Rotary(4, i), *v))
        np.testing.assert_array_equal(case.reference()[0].ravel(), expected)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (_case("odd", (1, 1, 1, 4), 3, (1, 3)), "an even number"), (_case("long", (1, 1, 1, 4), 6, (1, 6)), "4 is below 6"),
        (_case("table", (1, 1, 1, 4), 4, (1, 3)), "tables with 2 or 4 columns"), (_case("pairs", (1, 1, 1, 4), 4, (1, 4), True), "tables with 2 columns"),
        (_case("rank", (1, 1, 4), 4, (1, 4)), "4 dims"), (_case("rows", (1, 1, 3, 4), 4, (2, 4)), "don't broadcast"),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_fit_is_refused(case: GraphCase, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        case.graph  # noqa: B018
