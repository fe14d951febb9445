from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case

CASES = [
    Case(f"{'upper' if upper else 'lower'}_{k}", "Trilu", {"x": values(2, 5, 7), "k": np.array(k)}, {"upper": upper}, constants=("k",))
    for upper in (0, 1) for k in (-9, -1, 0, 2, 9)
]  # fmt: skip
CASES += [
    Case("default", "Trilu", {"x": values(4, 4)}),
    Case("int64", "Trilu", {"x": values(4, 4, dtype=np.int64)}, {"upper": 0}),
    Case("bool", "Trilu", {"x": values(4, 4, dtype=bool)}),
]


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_trilu(case: Case, batch) -> None:
    batch(CASES).check(case)
