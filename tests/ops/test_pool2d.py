from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused
from tests.ops.images import check_reference
from tests.tolerances import APPROXIMATE


def _pool(op: str, name: str, shape: Sequence[int] = (2, 4, 9, 7), **attributes: object) -> Case:
    inputs = {"x": values(*shape)}
    return Case(f"{op}_{name}", op, inputs, attributes, tolerance=APPROXIMATE)


BOTH = {
    "plain": {"kernel_shape": [2, 2]},
    "strided": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "uneven": {"kernel_shape": [3, 2], "strides": [1, 3], "pads": [2, 0, 1, 1]},
    "ceil": {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 0, 1, 1], "ceil_mode": 1},
    "ceil_beyond": {"kernel_shape": [1, 2], "strides": [4, 4], "pads": [0, 0, 0, 1], "ceil_mode": 1},
    "dilated": {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 1, 1, 1]},
    "line": {"kernel_shape": [3], "strides": [2], "shape": (2, 5, 23), "pads": [1, 1]},
    "volume": {"kernel_shape": [2, 3, 2], "strides": [2, 1, 3], "pads": [1, 1, 0, 0, 2, 1], "shape": (2, 5, 6, 7, 8)},
    "volume_ceil": {
        "kernel_shape": [3, 2, 3],
        "strides": [2, 3, 2],
        "pads": [1, 0, 1, 1, 1, 0],
        "ceil_mode": 1,
        "shape": (1, 3, 6, 6, 7),
    },
    "same": {"kernel_shape": [2, 3], "auto_pad": "SAME_LOWER"},
    "one_channel": {"kernel_shape": [3, 3], "shape": (2, 1, 9, 30)},
    "many_channels": {"kernel_shape": [3, 3], "shape": (1, 603, 5, 9), "pads": [1, 1, 1, 1]},
    "wide": {"kernel_shape": [5, 5], "shape": (1, 20, 12, 40), "pads": [2, 2, 2, 2]},
}
DYNAMIC = {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}
CASES = [
    _pool("MaxPool", "same_dynamic", **DYNAMIC),
    _pool("MaxPool", "same_dynamic_line", shape=(2, 3, 8), kernel_shape=[4], strides=[3], auto_pad="SAME_LOWER"),
]
CASES += [_pool(op, name, **attributes) for op in ("MaxPool", "AveragePool") for name, attributes in BOTH.items()]
CASES += [
    _pool("AveragePool", "counts", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    _pool("AveragePool", "counts_ceil", kernel_shape=[3, 3], strides=[2, 3], pads=[1, 0, 0, 1], count_include_pad=1, ceil_mode=1),
]  # fmt: skip
CASES += [
    _pool("LpPool", f"{p}_{len(shape)}", shape=shape, p=p, kernel_shape=[3, 2, 2][: len(shape) - 2], pads=[1, 0, 1, 1, 1, 0][: 2 * len(shape) - 4])
    for p in (1, 2, 3)
    for shape in ((2, 5, 9), (2, 4, 9, 7), (1, 3, 5, 6, 7))
] + [_pool("LpPool", "plain", kernel_shape=[2, 2], strides=[2, 3])]  # fmt: skip
CASES += [_pool("GlobalLpPool", f"{p}", p=p) for p in (1, 2, 3)] + [_pool("GlobalLpPool", "line", shape=(2, 3, 7))]
CASES += [
    _pool("LRN", f"{size}_{shape[1]}", shape=shape, size=size, **attributes)
    for size, shape in ((1, (2, 4, 9, 7)), (3, (2, 4, 9, 7)), (5, (2, 17, 3, 5)), (5, (1, 1, 4, 4)), (7, (2, 3, 5, 5)))
    for attributes in ({"alpha": 0.5, "beta": 0.6, "bias": 2.0},)
] + [_pool("LRN", "plain", size=3)]
CASES += [
    _pool(op, f"{len(shape)}", shape=shape)
    for op in ("GlobalAveragePool", "GlobalMaxPool")
    for shape in ((2, 3, 7), (2, 3, 7, 5), (1, 3, 2, 4, 5))
]
INDICES = {
    **{name: BOTH[name] for name in ("plain", "strided", "uneven", "ceil", "dilated", "line", "volume", "one_channel")},
    "columns_first": {"kernel_shape": [3, 2], "storage_order": 1, "pads": [1, 0, 1, 1]},
    "line_columns_first": {"kernel_shape": [3], "storage_order": 1, "shape": (2, 3, 9)},
    "volume_columns_first": {**BOTH["volume_ceil"], "storage_order": 1},
}
CASES += [replace(_pool("MaxPool", f"indices_{name}", **attributes), outputs=2) for name, attributes in INDICES.items()]
CASES += [
    replace(_pool("MaxPool", f"ties_{len(shape)}", kernel_shape=[2] * (len(shape) - 2)), inputs={"x": np.ones(shape, np.float32)}, outputs=2)
    for shape in ((1, 2, 5), (2, 3, 4, 5), (2, 2, 3, 4, 5))
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_pools(case: Case, batch) -> None:
    batch(CASES).check(case)


@pytest.mark.build
@pytest.mark.parametrize("index", range(3))
def test_nan_and_infinity(index: int, batch) -> None:
    batch(_SPECIAL).check(_SPECIAL[index])


def _special(op: str) -> Case:
    x = values(1, 20, 6, 9)
    x[0, 3, 2, 2], x[0, 4, 1, 1], x[0, 5, 3, 3] = np.nan, np.inf, -np.inf
    x[0, 6] = -np.inf
    return Case(f"special_{op}", op, {"x": x}, {"kernel_shape": [2, 2]}, tolerance=APPROXIMATE, ort=False)


_SPECIAL = [
    _special("MaxPool"),
    replace(_special("MaxPool"), name="special_indices", outputs=2),
    _special("AveragePool"),
]


def test_the_reference_is_the_same_everywhere() -> None:
    for case in CASES[:4]:
        check_reference(case)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_other_numbers_of_dims_are_refused(op: str) -> None:
    more = {"x": values(1, 2, 4, 4, 4, 4)}
    refused(Case("plain", op, more, {"kernel_shape": [2, 2, 2, 2]}), "lines, images and volumes, with 3, 4 and 5 dims")


def test_a_mean_of_windows_that_depend_on_the_size_is_refused() -> None:
    refused(
        _pool("AveragePool", "same_dynamic", **DYNAMIC),
        "auto_pad of AveragePool with strides depends on the dynamic dim",
    )
