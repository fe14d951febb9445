from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import special, values
from tests.ops.harness import Case
from tests.tolerances import APPROXIMATE, HALF_SUMS, WIDE

SHAPES = [((2, 5, 7), (2, 7, 9)), ((3, 2, 6, 16), (3, 2, 16, 16)), ((3, 1, 4, 8), (1, 2, 8, 33)), ((4, 5, 7), (1, 7, 9)), ((5, 7), (3, 7, 9)),
         ((1, 1, 1), (1, 1, 1)), ((0, 5, 7), (0, 7, 9)), ((2, 5, 0), (2, 0, 9)), ((2, 131, 17), (2, 17, 67))]  # fmt: skip
CASES = [
    Case(f"MatMul_{i}", "MatMul", {"a": values(*a), "b": values(*b, seed=1)}, tolerance=APPROXIMATE)
    for i, (a, b) in enumerate(SHAPES)
]
CASES += [
    Case("MatMul_float64", "MatMul", {"a": values(2, 5, 7, dtype=np.float64), "b": values(2, 7, 9, dtype=np.float64)}),
    Case("MatMul_float16", "MatMul", {"a": values(2, 5, 7, dtype=np.float16), "b": values(2, 7, 9, dtype=np.float16)}, ort=False, tolerance=HALF_SUMS),
    Case("MatMul_int32", "MatMul", {"a": values(2, 5, 7, dtype=np.int32), "b": values(2, 7, 9, dtype=np.int32)}),
    Case("MatMul_constant_3d", "MatMul", {"a": values(2, 5, 7), "b": values(2, 7, 9)}, constants=("b",), tolerance=APPROXIMATE),
    Case("MatMul_special", "MatMul", {"a": special(2, 5, 8), "b": values(2, 8, 9)}, tolerance=WIDE),
    Case("MatMul_run_time_broadcast", "MatMul", {"a": values(3, 5, 7), "b": values(1, 7, 9)}, dims={"a": ["p", 5, 7], "b": ["q", 7, 9]}, tolerance=APPROXIMATE),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bmm(case: Case, batch) -> None:
    batch(CASES).check(case)
