from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused


def _range(name: str, start: int, count: int, delta: int) -> Case:
    """The limit is the size of a tensor."""
    inputs = {"start": np.array(start), "limit": values(count), "delta": np.array(delta)}
    return Case(name, "Range", inputs, constants=("start", "delta"), measured={"limit": "Size"})


CASES = [
    _range("up", 0, 7, 1),
    _range("steps", 2, 30, 5),
    _range("down", 19, 3, -4),
    _range("none", 5, 5, 1),
    _range("below", 9, 4, 1),
    _range("negative", -3, 2, 2),
]


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_arange(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_refusals() -> None:
    refused(
        Case("data", "Range", {"start": np.array(0), "limit": np.array(5), "delta": np.array(1)}), "computed from data"
    )
    refused(_range("zero", 0, 5, 0), "the step of Range must be a constant other than 0")
