from __future__ import annotations

import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case

CASES = [
    Case("Shape", "Shape", {"x": values(3, 4, 5)}), Case("Shape_part", "Shape", {"x": values(3, 4, 5)}, {"start": 1, "end": -1}),
    Case("Shape_empty", "Shape", {"x": values(3, 0)}), Case("Size", "Size", {"x": values(3, 4, 5)}),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_size(case: Case, batch) -> None:
    batch(CASES).check(case)
