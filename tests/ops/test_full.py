from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.ops.arrays import values
from tests.ops.harness import Case, refused


def _full(name: str, shape: list[int], value: object, number: int) -> Case:
    tensor = helper.make_tensor("v", number, [1], [value])
    return Case(name, "ConstantOfShape", {"like": values(*shape)}, {"value": tensor}, measured={"like": "Shape"})


CASES = [
    _full("float", [3, 70], 1.5, 1),
    _full("int64", [500], -7, 7),
    _full("bool", [70, 70], True, 9),
    _full("half", [90], 0.5, 10),
]
CASES += [
    Case("default", "ConstantOfShape", {"like": values(3, 20)}, measured={"like": "Shape"}),
    _full("empty", [0, 3], 1.0, 1),
]


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_full(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_refusals() -> None:
    refused(Case("data", "ConstantOfShape", {"shape": np.array([3])}), "computed from data")
