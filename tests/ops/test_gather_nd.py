from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused

CASES = [
    Case("rows", "GatherND", {"x": values(3, 4, 5), "i": np.array([[0], [2], [-1]])}, dims={"i": ["n", 1]}),
    Case("pairs", "GatherND", {"x": values(3, 4, 5), "i": np.array([[0, 1], [2, -1]])}, dims={"i": ["n", 2]}),
    Case("elements", "GatherND", {"x": values(3, 4), "i": np.array([[[0, 1]], [[2, 3]]])}, dims={"i": ["n", 1, 2]}),
    Case(
        "batch",
        "GatherND",
        {"x": values(2, 4, 5), "i": np.array([[[1]], [[3]]])},
        {"batch_dims": 1},
        dims={"i": ["b", 1, 1], "x": ["b", 4, 5]},
    ),
]


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gather_nd(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_refusals() -> None:
    refused(
        Case("depth", "GatherND", {"x": values(3), "i": np.array([[0, 1]])}, dynamic=False),
        "GatherND.*must not be larger than the rank",
    )
