from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import special, values
from tests.ops.harness import Case, refused
from tests.tolerances import APPROXIMATE, HALF_SUMS, WIDE

OPS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
]
AXES = [[0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2], [-1]]


def _case(name: str, op: str, x: np.ndarray, axes: list[int] | None, **more: object) -> Case:
    inputs = {"x": x} | ({"axes": np.array(axes)} if axes is not None else {})
    return Case(name, op, inputs, {"keepdims": len(name) % 2}, constants=("axes",), **more)  # type: ignore[arg-type]


CASES = [
    _case(f"{op}_{''.join(map(str, axes))}", op, values(3, 5, 19, low=0.5 if "Log" in op else -2, high=2), axes, tolerance=APPROXIMATE)
    for op in OPS for axes in AXES
]  # fmt: skip
CASES += [_case(f"{op}_all", op, values(7, 3, low=0.5), None, tolerance=APPROXIMATE) for op in OPS]
CASES += [_case(f"{op}_{np.dtype(t)}", op, values(3, 17, dtype=t), [1], ort=t in (np.int32, np.int64) and op not in ("ReduceProd", "ReduceL1"))
          for op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceSumSquare")
          for t in (np.int8, np.int32, np.int64, np.uint8)]  # fmt: skip
CASES += [_case(f"{op}_{np.dtype(t)}", op, values(3, 17, dtype=t), [1], ort=False, tolerance=HALF_SUMS if np.dtype(t).itemsize == 2 else None)
          for op in ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2") for t in (np.float64, np.float16)]  # fmt: skip
CASES += [
    _case(f"{op}_special", op, special(16, 9), [1], ort=op in ("ReduceSum", "ReduceMean"), tolerance=APPROXIMATE)
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceLogSumExp")
]
CASES += [_case(f"{op}_rows_of_{n}", op, values(5, 27, n, low=0.5), [2], tolerance=APPROXIMATE)
          for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceProd", "ReduceLogSumExp")
          for n in (1, 2, 3, 16, 17)]  # fmt: skip
CASES += [_case(f"{op}_rows_of_2_{np.dtype(t)}", op, values(131, 2, dtype=t), [1], ort=False) for op in ("ReduceSum", "ReduceMax")
          for t in (np.int8, np.float16, np.float64)]  # fmt: skip
CASES += [
    _case(f"{op}_special_rows_of_3", op, special(70, 3), [1], ort=op != "ReduceLogSumExp", tolerance=APPROXIMATE)
    for op in ("ReduceSum", "ReduceMax", "ReduceLogSumExp")
]
CASES += [
    _case("ReduceSum_long", "ReduceSum", values(2, 100_003), [1], tolerance=(WIDE, 1e-2)),
    _case("ReduceSum_empty", "ReduceSum", values(3, 0), [1]),
    _case("ReduceProd_empty", "ReduceProd", values(3, 0), [1]),
    _case("ReduceMean_empty", "ReduceMean", values(3, 0), [1]),
    _case("ReduceMean_of_empty_rows", "ReduceMean", values(0, 3), [0]),
    _case("ReduceMean_of_nothing", "ReduceMean", values(0), [0]),
    _case("ReduceMax_bool", "ReduceMax", values(3, 7, dtype=bool), [1]),
    _case("ReduceMin_bool", "ReduceMin", values(3, 7, dtype=bool), [1]),
    Case("ReduceMean_attribute", "ReduceMean", {"x": values(3, 5, 7)}, {"axes": [-1], "keepdims": 1}, opset=13),
    Case("ReduceSum_attribute", "ReduceSum", {"x": values(3, 5, 7)}, {"axes": [1], "keepdims": 0}, opset=11),
    Case("ReduceSum_noop", "ReduceSum", {"x": values(3, 5)}, {"noop_with_empty_axes": 1}),
]


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_reduce(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_axes_from_data_are_refused() -> None:
    refused(Case("dynamic_axes", "ReduceSum", {"x": values(3, 5), "axes": np.array([1])}), "axes")
