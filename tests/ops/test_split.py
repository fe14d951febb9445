from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused

CASES = [
    Case("even", "Split", {"x": values(6, 4)}, {"num_outputs": 3}, outputs=3, dynamic=False),
    Case("uneven", "Split", {"x": values(7, 4)}, {"num_outputs": 3}, outputs=3, dynamic=False),
    Case("sizes", "Split", {"x": values(3, 9), "sizes": np.array([2, 3, 4])}, {"axis": 1}, constants=("sizes",), outputs=3, dims={"x": ["n", 9]}),
    Case("with_empty", "Split", {"x": values(3, 5), "sizes": np.array([0, 5])}, {"axis": -1}, constants=("sizes",), outputs=2, dims={"x": ["n", 5]}),
    Case("opset_11", "Split", {"x": values(6, 2)}, {"split": [1, 5], "axis": 0}, outputs=2, opset=11, dynamic=False),
    Case("opset_13", "Split", {"x": values(6, 2)}, {"axis": 0}, outputs=2, opset=13, dynamic=False),
    Case("heads", "Split", {"x": values(2, 5, 48)}, {"axis": 2, "num_outputs": 3}, outputs=3, dims={"x": ["b", "s", 48]}),
    Case("dynamic_sizes", "Split", {"x": values(7), "sizes": np.array([3, 4])}, constants=("sizes",), outputs=2),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_split(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_refusals() -> None:
    refused(Case("dynamic", "Split", {"x": values(6)}, {"num_outputs": 2}, outputs=2), "dynamic dim")
