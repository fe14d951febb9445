from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import special, values
from tests.ops.harness import Case

SHAPES = [(1,), (7,), (3, 8), (2, 3, 17), (5, 1), (0, 4), (33, 129)]
CASES = [
    Case(f"{op}_{i}", op, {"x": values(*shape)}, {"axis": -1})
    for op in ("Softmax", "LogSoftmax")
    for i, shape in enumerate(SHAPES)
]
CASES += [
    Case(f"{op}_axis_{axis}", op, {"x": values(3, 5, 19)}, {"axis": axis})
    for op in ("Softmax", "LogSoftmax")
    for axis in (0, 1, 2)
]
CASES += [
    Case(f"{op}_flattened_{axis}", op, {"x": values(3, 5, 7)}, {"axis": axis}, opset=11)
    for op in ("Softmax", "LogSoftmax")
    for axis in (0, 1, 2)
]
CASES += [
    Case("Softmax_float64", "Softmax", {"x": values(3, 9, dtype=np.float64)}),
    Case("Softmax_float16", "Softmax", {"x": values(3, 9, dtype=np.float16)}, ort=False),
]
CASES += [
    Case("Softmax_large", "Softmax", {"x": values(3, 9) * 1e4}), Case("LogSoftmax_large", "LogSoftmax", {"x": values(3, 9) * 1e4}),
    Case("Softmax_special", "Softmax", {"x": special(16, 9)}, ort=False),
    Case("Softmax_infinite", "Softmax", {"x": np.float32([[-np.inf, 0, 1], [np.nan, 0, 1]])}),
    Case("Hardmax", "Hardmax", {"x": values(3, 9)}, {"axis": 1}), Case("Hardmax_0", "Hardmax", {"x": values(3, 9)}, {"axis": 0}),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_softmax(case: Case, batch) -> None:
    batch(CASES).check(case)
