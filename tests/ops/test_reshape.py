from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused


def _reshape(name: str, shape: tuple[int, ...], to: list[int], **more: object) -> Case:
    return Case(name, "Reshape", {"x": values(*shape), "shape": np.array(to, np.int64)}, constants=("shape",), **more)  # type: ignore[arg-type]


CASES = [
    _reshape("flat", (3, 5), [-1]), _reshape("copy_dims", (3, 5, 7), [0, -1]), _reshape("split", (3, 8), [0, 2, 4], dynamic=False),
    _reshape("infer_split", (3, 8), [0, -1, 4]), _reshape("to_scalar", (1, 1), []), _reshape("empty", (0, 5), [5, 0], dynamic=False, attributes={"allowzero": 1}),
    Case("Flatten", "Flatten", {"x": values(2, 3, 5)}, {"axis": 2}), Case("Flatten_0", "Flatten", {"x": values(2, 3, 5)}, {"axis": 0}),
    Case("Flatten_negative", "Flatten", {"x": values(2, 3, 5)}, {"axis": -1}),
    Case("Squeeze", "Squeeze", {"x": values(1, 3, 1, 5), "axes": np.array([0, -2])}, constants=("axes",)),
    Case("Squeeze_all", "Squeeze", {"x": values(1, 3, 1)}, dynamic=False), Case("Squeeze_11", "Squeeze", {"x": values(1, 3)}, {"axes": [0]}, opset=11),
    Case("Unsqueeze", "Unsqueeze", {"x": values(3, 5), "axes": np.array([0, -1])}, constants=("axes",)),
    Case("Unsqueeze_11", "Unsqueeze", {"x": values(3)}, {"axes": [0, 2]}, opset=11),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_reshape(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_refusals() -> None:
    refused(_reshape("two", (4, 4), [-1, -1]), "Reshape.*multiple -1 dimensions")
    refused(_reshape("uneven", (3, 5), [4, -1], dynamic=False), "not a multiple of 4")
    refused(_reshape("sizes", (3, 5), [4, 4], dynamic=False), "differ")
    refused(Case("data", "Reshape", {"x": values(4), "shape": np.array([2, 2])}), "computed from data")
    refused(Case("squeeze", "Squeeze", {"x": values(1, 3)}, dims={"x": ["a", "b"]}), "Squeeze without axes")
