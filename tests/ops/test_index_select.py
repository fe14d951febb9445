from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused

INDICES = np.array([[0, 2, -1], [1, 1, -3]])
CASES = [
    Case(f"axis_{axis}_{np.dtype(t)}", "Gather", {"x": values(3, 4, 5), "i": INDICES.astype(t)}, {"axis": axis})
    for axis in (0, 1, 2, -1)
    for t in (np.int32, np.int64)
]
CASES += [
    Case("scalar_index", "Gather", {"x": values(3, 4), "i": np.array(1)}, {"axis": 0}), Case("constant_index", "Gather", {"x": values(3, 4), "i": np.array([1, 0])}, {"axis": 1}, constants=("i",)),
    Case("embedding", "Gather", {"table": values(50, 16), "ids": values(2, 9, dtype=np.int64, low=0, high=49)}, constants=("table",)),
    Case("no_indices", "Gather", {"x": values(3, 4), "i": np.zeros((0,), np.int64)}), Case("bool", "Gather", {"x": values(3, 4, dtype=bool), "i": np.array([2])}),
    Case("OneHot", "OneHot", {"i": np.array([0, 2, -1, 7]), "d": np.array(4), "v": np.array([0.0, 1.0], np.float32)}, constants=("d",), dims={"i": ["n"], "v": [2]}),
    Case("OneHot_axis", "OneHot", {"i": values(2, 3, dtype=np.int64, low=0), "d": np.array(5), "v": np.array([2, 9])}, {"axis": 1}, constants=("d", "v")),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_index_select(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_refusals() -> None:
    refused(Case("axis", "Gather", {"x": values(3), "i": np.array([0])}, {"axis": 3}), "Gather.*axis must be in")


@pytest.mark.parametrize("shape", [(3, 1), (3,), (1, 2)])
def test_one_hot_of_anything_but_two_numbers(shape: tuple[int, ...]) -> None:
    case = Case("values", "OneHot", {"i": np.array([0, 2]), "d": np.array(4), "v": values(*shape)}, constants=("d",))
    refused(case, r"OneHot.*the values of OneHot are float32\[.*not two numbers")
