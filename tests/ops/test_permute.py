from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused

CASES = [
    Case(f"order_{''.join(map(str, order))}", "Transpose", {"x": values(2, 5, 17)}, {"perm": list(order)})
    for order in itertools.permutations(range(3))
]
CASES += [Case(f"heads_{np.dtype(t)}", "Transpose", {"x": values(2, 7, 3, 16, dtype=t)}, {"perm": [0, 2, 1, 3]})
          for t in (np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_)]  # fmt: skip
CASES += [
    Case("default", "Transpose", {"x": values(3, 4, 5, 6)}), Case("matrix", "Transpose", {"x": values(67, 131)}), Case("empty", "Transpose", {"x": values(0, 3)}),
    Case("rank_6", "Transpose", {"x": values(2, 3, 2, 3, 2, 3)}, {"perm": [5, 3, 1, 0, 2, 4]}), Case("vector", "Transpose", {"x": values(5)}),
    Case("DepthToSpace", "DepthToSpace", {"x": values(2, 8, 3, 5)}, {"blocksize": 2}, dynamic=False),
    Case("DepthToSpace_CRD", "DepthToSpace", {"x": values(2, 8, 3, 5)}, {"blocksize": 2, "mode": "CRD"}, dynamic=False),
    Case("SpaceToDepth", "SpaceToDepth", {"x": values(2, 3, 4, 6)}, {"blocksize": 2}),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_permute(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_refusals() -> None:
    refused(
        Case("mode", "DepthToSpace", {"x": values(1, 4, 2, 2)}, {"blocksize": 2, "mode": "XYZ"}, dynamic=False), "mode"
    )
