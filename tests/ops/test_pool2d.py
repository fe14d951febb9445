from __future__ import annotations

import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused
from tests.ops.images import check_reference, reason_on_cpus
from tests.tolerances import APPROXIMATE


def _pool(op: str, name: str, **attributes: object) -> Case:
    return Case(f"{op}_{name}", op, {"x": values(2, 4, 9, 7)}, attributes, tolerance=APPROXIMATE)


CASES = [
    _pool(op, name, **attributes)
    for op in ("MaxPool", "AveragePool")
    for name, attributes in {
        "plain": {"kernel_shape": [2, 2]},
        "strided": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        "uneven": {"kernel_shape": [3, 2], "strides": [1, 3], "pads": [2, 0, 1, 1]},
    }.items()
]
CASES += [
    _pool("AveragePool", "counts", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    _pool("GlobalAveragePool", "all"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pools(case: Case) -> None:
    check_reference(case)


def test_cpus_have_no_kernel() -> None:
    assert reason_on_cpus(CASES[0]) == "there is no CPU kernel for pool2d yet"


def test_what_is_not_supported_is_refused() -> None:
    refused(_pool("MaxPool", "ceil", kernel_shape=[2, 2], ceil_mode=1), "ceil_mode=1")
    refused(Case("two", "MaxPool", {"x": values(2, 4, 9, 7)}, {"kernel_shape": [2, 2]}, outputs=2), "output 1")


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_other_numbers_of_dims_are_refused(op: str) -> None:
    volume = {"x": values(1, 2, 4, 4, 4)}
    refused(Case("volume", op, volume, {"kernel_shape": [2, 2, 2], "dilations": [1, 1, 1]}), "its dilations are")
    refused(Case("plain", op, volume, {"kernel_shape": [2, 2, 2]}), "images with 4 dims")
    refused(Case("line", op, {"x": values(1, 2, 4)}, {"kernel_shape": [2]}), "images with 4 dims")
