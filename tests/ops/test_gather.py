from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case

CASES = [
    Case(f"axis_{axis}_{np.dtype(t)}", "GatherElements", {"x": values(3, 4, 5), "i": values(3, 4, 5, dtype=t, low=-3, high=2)}, {"axis": axis})
    for axis in (0, 1, 2, -1) for t in (np.int32, np.int64)
]  # fmt: skip
CASES += [
    Case(
        "smaller",
        "GatherElements",
        {"x": values(3, 4), "i": values(2, 4, dtype=np.int64, low=0, high=2)},
        {"axis": 0},
        dynamic=False,
    )
]


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gather(case: Case, batch) -> None:
    batch(CASES).check(case)
