from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case

TIES = np.float32([[1, 3, 3, 2], [5, 5, 0, 5]])
CASES = [
    Case(f"{op}_{axis}_{keep}_{last}", op, {"x": values(3, 5, 19)}, {"axis": axis, "keepdims": keep, "select_last_index": last})
    for op in ("ArgMax", "ArgMin") for axis in (0, 1, -1) for keep in (0, 1) for last in (0, 1)
]  # fmt: skip
CASES += [
    Case(f"{op}_ties_{last}", op, {"x": TIES}, {"axis": 1, "select_last_index": last})
    for op in ("ArgMax", "ArgMin")
    for last in (0, 1)
]
CASES += [
    Case(f"ArgMax_{np.dtype(t)}", "ArgMax", {"x": values(3, 9, dtype=t)}, {"axis": 1}, ort=t is not np.float16)
    for t in (np.int32, np.float64, np.float16)
]


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_argmax(case: Case, batch) -> None:
    batch(CASES).check(case)
