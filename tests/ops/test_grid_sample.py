from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused
from tests.tolerances import WIDE

MODES, PADDINGS = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")


def _case(name: str, shape: tuple[int, ...] = (2, 3, 5, 7), places: tuple[int, ...] = (4, 9), **more: object) -> Case:
    inputs = {"x": values(*shape), "grid": values(shape[0], *places, 2, seed=1, low=-1.6, high=1.6)}
    inputs |= more.pop("inputs", {})  # type: ignore[call-overload]
    how = {"ort": more.pop("ort", True), "opset": more.pop("opset", 20), "dynamic": more.pop("dynamic", True)}
    return Case(name, "GridSample", inputs, more, tolerance=WIDE, **how)  # type: ignore[arg-type]


CASES = [
    _case(f"{mode}_{padding}_{corners}", mode=mode, padding_mode=padding, align_corners=corners)
    for mode in MODES
    for padding in PADDINGS
    for corners in (0, 1)
]
CASES += [
    _case(f"{mode}_{shape}", shape, mode=mode, padding_mode="reflection")
    for mode in MODES
    for shape in ((1, 1, 1, 9), (2, 17, 3, 4), (1, 65, 6, 6))
]
CASES += [
    _case("old_names", mode="bilinear", opset=16), _case("old_cubic", mode="bicubic", opset=16), _case("fixed", dynamic=False),
    _case("no_places", places=(0, 3), ort=False), _case("no_images", (0, 3, 5, 7), ort=False), _case("one_place", places=(1, 1)),
    _case("one_pixel", (1, 2, 1, 1), padding_mode="border", align_corners=1),
    _case("float64", inputs={"x": values(2, 3, 5, 7, dtype=np.float64), "grid": values(2, 4, 9, 2, low=-1.6, high=1.6, dtype=np.float64)}, ort=False),
]  # fmt: skip


def _special() -> list[Case]:
    """Places that are nowhere, far away, and pixels that are no numbers."""
    x, grid = values(1, 3, 5, 7), values(1, 4, 3, 2, seed=1, low=-1.6, high=1.6)
    x[0, 0, 2, 2], x[0, 1, 4, 6], x[0, 2, 0, 0] = np.nan, np.inf, -np.inf
    grid[0, 0, 0], grid[0, 1, 1], grid[0, 2, 0], grid[0, 3, 1, 0] = np.nan, np.inf, 1e30, -np.inf
    return [
        _case(f"special_{mode}_{padding}", inputs={"x": x, "grid": grid}, ort=False, mode=mode, padding_mode=padding)
        for mode in MODES
        for padding in PADDINGS
    ]


CASES += _special()


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_grid_sample(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_what_is_not_supported_is_refused() -> None:
    volume = {"x": values(1, 2, 3, 4, 5), "grid": values(1, 2, 2, 2, 3)}
    refused(Case("volume", "GridSample", volume, dynamic=False), "images, with 4 dims")
    refused(_case("mode", mode="lanczos"), "mode=lanczos is not defined")
    refused(_case("padding", padding_mode="wrap"), "padding_mode=wrap is not defined")
    three = {"x": values(1, 2, 3, 4), "grid": values(1, 2, 2, 3)}
    refused(
        Case("numbers", "GridSample", three, dynamic=False),
        "the numbers of a place differ: 3 and 2|shapes can't be inferred",
    )
