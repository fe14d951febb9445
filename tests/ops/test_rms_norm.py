from __future__ import annotations

import numpy as np
import pytest

from ortisan.registry.builder import Builder
from ortisan.registry.graph import Value
from ortisan.registry.ops import RmsNorm
from ortisan.registry.refusal import Refused
from tests.ops.arrays import BFLOAT16, values
from tests.ops.op_graphs import GraphBatch, GraphCase
from tests.tolerances import SAME


def _norm(name: str, x: np.ndarray, axis: int, scaled: bool = True, dims: object = None, **more: object) -> GraphCase:
    def write(b: Builder, *operands: Value) -> Value:
        return b.add(RmsNorm(axis, 1e-6, scaled), *operands)

    inputs = {"x": x} | ({"gamma": values(*x.shape[axis:], dtype=x.dtype, seed=1)} if scaled else {})
    return GraphCase(name, inputs, write, {"x": dims} if dims else {}, **more)  # type: ignore[arg-type,dict-item]


CASES = [_norm(f"rows_{n}", values(3, n), 1) for n in (1, 7, 8, 9, 67, 768, 1025)]
CASES += [
    _norm("axis_1", values(3, 5, 7), 1), _norm("one_row", values(9), 0), _norm("empty", values(0, 9), 1), _norm("plain", values(3, 33), 1, False),
    _norm("dynamic", values(2, 5, 16), 2, dims=["b", "s", 16]), _norm("float64", values(3, 16, dtype=np.float64), 1),
    _norm("float16", values(3, 70, dtype=np.float16), 1), _norm("bfloat16", values(3, 70, dtype=BFLOAT16), 1),
    _norm("special", np.float32([[1, np.nan, 2], [np.inf, 0, 1], [0, -0.0, 1e-40]]), 1), _norm("zeros", np.zeros((2, 5), np.float32), 1),
    # 300 squared is more than float16 holds: the sum is in float32.
    _norm("large_float16", np.full((2, 64), 300, np.float16), 1),
]  # fmt: skip
BATCH = GraphBatch(CASES, "rms_norm")


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_rms_norm(case: GraphCase) -> None:
    BATCH.check(case)


def test_what_the_reference_means() -> None:
    x = np.array([[3.0, 4.0]], np.float32)
    (got,) = _norm("two", x, 1, False).reference()
    np.testing.assert_allclose(got, x / np.sqrt(12.5), SAME)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(Refused, match="one float type"):
        _norm("ints", np.ones((2, 3), np.int32), 1).graph  # noqa: B018
