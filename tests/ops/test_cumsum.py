from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case
from tests.tolerances import APPROXIMATE

CASES = [
    Case(f"CumSum_{axis}_{exclusive}_{reverse}", "CumSum", {"x": values(3, 5, 19), "axis": np.array(axis)},
         {"exclusive": exclusive, "reverse": reverse}, constants=("axis",), tolerance=APPROXIMATE)
    for axis in (0, 1, -1) for exclusive in (0, 1) for reverse in (0, 1)
]  # fmt: skip
CASES += [
    Case("CumSum_int", "CumSum", {"x": values(3, 9, dtype=np.int64), "axis": np.array([1])}, constants=("axis",)),
    Case("CumSum_empty", "CumSum", {"x": values(3, 0), "axis": np.array(1)}, constants=("axis",), ort=False),
]


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cumsum(case: Case, batch) -> None:
    batch(CASES).check(case)
