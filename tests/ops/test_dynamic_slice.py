from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ortisan
from tests.ops.arrays import values
from tests.ops.harness import Case, refused

BIG = 2**63 - 1


def _slice(
    name: str,
    shape: tuple[int, ...],
    starts: list[int],
    ends: list[int],
    axes: list[int] | None = None,
    steps: list[int] | None = None,
    dtype: object = np.float32,
    **more: object,
) -> Case:
    inputs = {"x": values(*shape, dtype=dtype), "starts": np.array(starts), "ends": np.array(ends)}
    inputs["axes"] = np.array(axes if axes is not None else range(len(starts)))
    if steps is not None:
        inputs["steps"] = np.array(steps)
    return Case(name, "Slice", inputs, constants=("starts", "ends", "axes", "steps"), **more)  # type: ignore[arg-type]


RANGES = [(0, BIG, 1), (1, BIG, 1), (0, 3, 1), (2, 5, 1), (-3, BIG, 1), (0, -2, 1), (-4, -1, 1), (0, BIG, 2), (1, 6, 3), (BIG, -BIG, -1), (5, 1, -2), (-1, -BIG, -3),
          (9, BIG, 1), (5, 2, 1), (0, 100, 1), (-100, 2, 1), (2, 1, -1)]  # fmt: skip
CASES = [_slice(f"range_{i}", (7, 3), [a], [b], [0], [s]) for i, (a, b, s) in enumerate(RANGES)]
CASES += [_slice(f"static_{i}", (7, 3), [a], [b], [0], [s], dynamic=False) for i, (a, b, s) in enumerate(RANGES)]
CASES += [
    _slice("two_axes", (5, 6, 7), [1, 2], [4, 6], [0, 2]), _slice("negative_axis", (5, 6), [1], [BIG], [-1]), _slice("int64", (9,), [2], [7], dtype=np.int64),
    _slice("bool", (9,), [2], [7], dtype=bool), _slice("no_axes", (5, 6), [1, 2], [4, 5]),
    Case("opset_1", "Slice", {"x": values(5, 6)}, {"starts": [1], "ends": [4], "axes": [1]}, opset=9),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_dynamic_slice(case: Case, batch) -> None:
    batch(CASES).check(case)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 9), st.integers(-12, 12), st.integers(-12, 12), st.sampled_from([1, 2, 3, -1, -2, -3]))
def test_any_slice_is_numpys(n: int, start: int, end: int, step: int) -> None:
    case = _slice("slice", (n,), [start], [end], [0], [step])
    result = ortisan.compile(case.model(), whole_graph=True, target="reference").run(case.feeds())
    np.testing.assert_array_equal(result[0], case.inputs["x"][start:end:step])  # type: ignore[index]


def test_refusals() -> None:
    refused(_slice("step", (5,), [0], [3], [0], [0]), "step")
    refused(
        Case("data", "Slice", {"x": values(5), "starts": np.array([0]), "ends": np.array([2])}), "computed from data"
    )
