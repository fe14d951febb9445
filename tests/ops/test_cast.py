from __future__ import annotations

import numpy as np
import pytest

from ortisan.registry.dtypes import DType
from tests.ops.arrays import BFLOAT16, special, values
from tests.ops.harness import Case

TYPES = [dtype.numpy for dtype in DType]
CASES = [
    Case(f"{source}_to_{target}", "Cast", {"x": values(37, dtype=source, low=0, high=9)}, {"to": DType.from_numpy(target).onnx},
         ort=BFLOAT16 not in (source, target))
    for source in TYPES for target in TYPES if source != target
]  # fmt: skip
CASES += [
    Case("negative_truncates", "Cast", {"x": np.array([-1.9, -0.5, 0.5, 1.9, -7.0], np.float32)}, {"to": 7}),
    Case("nan_is_true", "Cast", {"x": special(16)}, {"to": 9}),
    Case(
        "float_to_half_rounds",
        "Cast",
        {"x": np.float32([1.0009765, 65519.0, 65520.0, 6e-8, 2.98e-8, -1e-9])},
        {"to": 10},
    ),
    Case("like", "CastLike", {"x": values(9), "t": values(2, dtype=np.int32)}),
]


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cast(case: Case, batch) -> None:
    batch(CASES).check(case)
