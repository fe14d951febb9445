from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused
from tests.tolerances import APPROXIMATE

COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
SCALES = ((2.0, 2.0), (0.7, 1.7), (1.0, 3.0), (0.1, 0.3))


def _resize(name: str, scales: Sequence[float] = (), sizes: Sequence[int] = (), **attributes: object) -> Case:
    shape = attributes.pop("shape", (2, 5, 7, 9))
    factors = np.array([1, 1, *scales] if scales else [], np.float32)
    wanted = np.array([*shape[:2], *sizes], np.int64) if sizes else None  # type: ignore[index]
    inputs = {"x": values(*shape), "roi": np.zeros(0, np.float32), "scales": factors, "sizes": wanted}  # type: ignore[misc]
    return Case(name, "Resize", inputs, attributes, ("roi", "scales", "sizes"), dynamic=False, tolerance=APPROXIMATE)


CASES = [
    _resize(f"{mode}_{how}_{scales[0]}_{scales[1]}", scales, mode=mode, coordinate_transformation_mode=how)
    for mode in ("nearest", "linear")
    for how in COORDINATES
    for scales in SCALES
]
CASES += [
    _resize(f"{rounding}_{scales[0]}_{scales[1]}", scales, nearest_mode=rounding, coordinate_transformation_mode="asymmetric")
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    for scales in SCALES
]  # fmt: skip
CASES += [
    _resize(f"{mode}_sizes_{size}", sizes=(size, 11), mode=mode)
    for mode in ("nearest", "linear")
    for size in (1, 3, 7, 20)
]
CASES += [
    _resize("one_channel", (2.0, 3.0), shape=(1, 1, 4, 100), mode="linear"),
    _resize("many_channels", (2.0, 2.0), shape=(1, 70, 3, 5), mode="linear"),
    _resize("line", (2.5,), shape=(2, 3, 9), mode="linear"),
    Case("upsample", "Upsample", {"x": values(1, 3, 4, 5), "scales": np.array([1, 1, 2, 3], np.float32)}, constants=("scales",), opset=9, ort=False),
    Case("dynamic", "Resize", {"x": values(1, 3, 4, 5), "roi": None, "scales": np.array([1, 1, 2, 0.5], np.float32)}, {"mode": "linear"}, ("scales",), dims={"x": ["n", 3, "h", "w"]}),
    Case("whole_numbers", "Resize", {"x": values(1, 3, 4, 5, dtype=np.int32), "roi": None, "scales": np.array([1, 1, 2, 2], np.float32)}, {"mode": "nearest"}, ("scales",), dynamic=False),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_resize(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_what_is_not_supported_is_refused() -> None:
    channels = {"x": values(2, 5, 7, 9), "roi": None, "scales": np.array([1, 2, 1, 1], np.float32)}
    refused(Case("channels", "Resize", channels, constants=("scales",), dynamic=False), "batch or channels")
    more = {"x": values(2, 5, 7, 9), "roi": None, "scales": np.array([1, 1, 2, 1, 1], np.float32)}
    refused(
        Case("more", "Resize", more, constants=("scales",), dynamic=False),
        "4 axes can't have 5 scales|shapes can't be inferred",
    )
    refused(_resize("cubic", (2.0, 2.0), mode="cubic"), "mode=cubic is not supported")
    refused(_resize("antialias", (0.5, 0.5), mode="linear", antialias=1), "antialias is not supported")
    refused(_resize("crop", (2.0, 2.0), coordinate_transformation_mode="tf_crop_and_resize"), "tf_crop_and_resize")
