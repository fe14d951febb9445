from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused

CASES = [
    Case(
        f"axis_{axis}",
        "Concat",
        {"a": values(3, 4, 5), "b": values(3, 4, 5, seed=1), "c": values(3, 4, 5, seed=2)},
        {"axis": axis},
    )
    for axis in (0, 1, 2, -1)
]
CASES += [
    Case("uneven", "Concat", {"a": values(3, 2), "b": values(3, 7)}, {"axis": 1}), Case("with_empty", "Concat", {"a": values(0, 2), "b": values(3, 2)}, {"axis": 0}),
    Case("one", "Concat", {"a": values(3, 2)}, {"axis": 0}), Case("int64", "Concat", {"a": values(3, dtype=np.int64), "b": values(2, dtype=np.int64)}, {"axis": 0}),
    Case("bool", "Concat", {"a": values(3, dtype=bool), "b": values(2, dtype=bool)}, {"axis": 0}), Case("with_constant", "Concat", {"a": values(1, 3), "b": values(4, 3)}, {"axis": 0}, constants=("b",)),
    Case("same_twice", "Concat", {"a": values(5)}, {"axis": 0}), Case("past", "Concat", {"past": values(2, 3, 0, 4), "new": values(2, 3, 1, 4)}, {"axis": 2}, dims={"past": ["b", 3, "p", 4], "new": ["b", 3, "s", 4]}),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_concatenate(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_refusals() -> None:
    refused(Case("sizes", "Concat", {"a": values(3, 2), "b": values(4, 2)}, {"axis": 1}, dynamic=False), "differ")
