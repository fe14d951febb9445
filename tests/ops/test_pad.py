from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused


def _pad(
    name: str,
    shape: tuple[int, ...],
    pads: list[int],
    mode: str = "constant",
    value: float | None = None,
    dtype: object = np.float32,
    **more: object,
) -> Case:
    inputs = {"x": values(*shape, dtype=dtype), "pads": np.array(pads)}
    if value is not None:
        inputs["value"] = np.array(value, dtype)  # type: ignore[arg-type]
    return Case(name, "Pad", inputs, {"mode": mode}, constants=("pads", "value"), **more)  # type: ignore[arg-type]


MODES = ("constant", "edge", "reflect", "wrap")
CASES = [_pad(f"{mode}_1d", (7,), [2, 3], mode) for mode in MODES]
CASES += [_pad(f"{mode}_2d", (5, 6), [1, 0, 2, 3], mode) for mode in MODES]
CASES += [_pad(f"{mode}_3d", (3, 4, 5), [0, 1, 2, 0, 2, 1], mode) for mode in MODES]
CASES += [
    _pad(f"{mode}_negative", (5, 6), [-1, 1, 2, -2], mode, ort=mode == "constant") for mode in ("constant", "edge")
]
CASES += [
    _pad("value", (3, 4), [1, 1, 1, 1], value=2.5), _pad("int64", (3, 4), [1, 1, 1, 1], value=7, dtype=np.int64), _pad("bool", (3,), [1, 2], value=1, dtype=bool),
    _pad("empty", (0, 3), [1, 0, 1, 0]), _pad("nothing", (3,), [0, 0]),
    Case("axes", "Pad", {"x": values(3, 4, 5), "pads": np.array([1, 2]), "value": None, "axes": np.array([-1])}, constants=("pads", "axes")),
    Case("opset_2", "Pad", {"x": values(3, 4)}, {"pads": [0, 1, 0, 1], "value": 1.5}, opset=9),
    Case("value_input", "Pad", {"x": values(3, 4), "pads": np.array([1, 1, 1, 1]), "value": np.array(3, np.float32)}, constants=("pads",)),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_pad(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_refusals() -> None:
    refused(_pad("far", (2,), [2, 0], "reflect", dynamic=False), "below")
    refused(_pad("mode", (2,), [2, 0], "mirror"), "Pad mode 'mirror'")
