from __future__ import annotations

import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused
from tests.ops.images import check_reference, reason_on_cpus
from tests.tolerances import APPROXIMATE, WIDE

SUMS = (APPROXIMATE, WIDE)


def _conv(
    name: str,
    channels: int,
    filters: int,
    kernel: tuple[int, int],
    *,
    group: int = 1,
    bias: bool = False,
    **attributes: object,
) -> Case:
    inputs = {"x": values(2, channels, 9, 7), "w": values(filters, channels // group, *kernel, seed=1)}
    if bias:
        inputs["b"] = values(filters, seed=2)
    return Case(name, "Conv", inputs, {**attributes, "group": group}, constants=("w", "b"), tolerance=SUMS)


CASES = [
    _conv("1x1", 4, 6, (1, 1)), _conv("3x3", 4, 6, (3, 3), pads=[1, 1, 1, 1], bias=True), _conv("strided", 3, 5, (3, 3), strides=[2, 2], pads=[1, 0, 2, 1]),
    _conv("dilated", 4, 2, (2, 3), dilations=[2, 3]), _conv("depthwise", 6, 6, (3, 3), group=6, bias=True), _conv("groups", 6, 4, (3, 1), group=2),
    _conv("valid", 2, 2, (3, 3), auto_pad="VALID"), _conv("tall", 2, 2, (5, 1), strides=[3, 1]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv(case: Case) -> None:
    check_reference(case)


def test_cpus_have_no_kernel() -> None:
    assert reason_on_cpus(CASES[0]) == "there is no CPU kernel for conv2d yet"


def test_what_is_not_supported_is_refused() -> None:
    refused(_conv("same", 2, 2, (3, 3), auto_pad="SAME_UPPER"), "auto_pad=SAME_UPPER")
    refused(Case("line", "Conv", {"x": values(1, 2, 9), "w": values(2, 2, 3)}, constants=("w",)), "images with 4 dims")
