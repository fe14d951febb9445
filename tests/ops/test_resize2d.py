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
    whole = "axes" not in attributes
    factors = np.array([*((1, 1) if whole else ()), *scales] if scales else [], np.float32)
    wanted = np.array([*(shape[:2] if whole else ()), *sizes], np.int64) if sizes else None  # type: ignore[index]
    x, roi = values(*shape, dtype=attributes.pop("dtype", np.float32)), attributes.pop("roi", np.zeros(0, np.float32))  # type: ignore[misc]
    inputs, constants = {"x": x, "roi": roi, "scales": factors, "sizes": wanted}, ("roi", "scales", "sizes")
    return Case(
        name, "Resize", inputs, attributes, constants, dynamic=False, tolerance=APPROXIMATE, ort=x.dtype == np.float32
    )


CASES = [
    _resize(f"{mode}_{how}_{scales[0]}_{scales[1]}", scales, mode=mode, coordinate_transformation_mode=how)
    for mode in ("nearest", "linear", "cubic")
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
    for mode in ("nearest", "linear", "cubic")
    for size in (1, 3, 7, 20)
]
CASES += [
    _resize(f"cubic_{a}_{excludes}_{how}", (0.7, 1.7), mode="cubic", cubic_coeff_a=a, exclude_outside=excludes, coordinate_transformation_mode=how)
    for a in (-0.5, -0.75)
    for excludes in (0, 1)
    for how in ("half_pixel", "asymmetric")
]  # fmt: skip
ROI = np.array([0, 0, 0.2, -0.3, 1, 1, 0.6, 1.4], np.float32)
CASES += [
    _resize(f"crop_{mode}_{size[0]}", sizes=size, mode=mode, roi=ROI, coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=2.5)
    for mode in ("nearest", "linear", "cubic")
    for size in ((4, 11), (1, 8))
] + [_resize("crop_flipped", sizes=(5, 6), mode="linear", roi=np.array([0, 0, 0.8, 1, 1, 1, 0.1, 0], np.float32), coordinate_transformation_mode="tf_crop_and_resize")]  # fmt: skip
CASES += [
    _resize(f"{policy}_{mode}", sizes=(5, 20), mode=mode, axes=(2, 3), keep_aspect_ratio_policy=policy)
    for policy in ("not_larger", "not_smaller")
    for mode in ("nearest", "linear")
] + [_resize("axes", (1.5, 2.0), axes=(3, 2)), _resize("negative_axes", (1.5,), axes=(-1,))]
CASES += [
    _resize("channels_last_nearest", (2.0, 2.0, 1.0), shape=(1, 4, 5, 3), axes=(1, 2, 3)), _resize("channels_last", (2.0, 0.5, 1.0), shape=(1, 4, 6, 3), axes=(1, 2, 3), mode="linear"),
    _resize("rank_2", (2.0, 0.5), shape=(4, 6), axes=(0, 1), mode="linear"),
    *(_resize(f"volume_{mode}_{how}", (2.0, 0.5, 1.5), shape=(2, 3, 4, 6, 5), axes=(2, 3, 4), mode=mode, coordinate_transformation_mode=how) for mode in ("nearest", "linear") for how in ("asymmetric", "half_pixel", "align_corners")),
    Case("upsample_7", "Upsample", {"x": values(1, 3, 4, 5)}, {"scales": [1.0, 1.0, 2.0, 3.0]}, opset=7, ort=False),
    Case("cubic_dynamic", "Resize", {"x": values(1, 3, 4, 5), "roi": None, "scales": np.array([1, 1, 2, 0.5], np.float32)}, {"mode": "cubic"}, ("scales",), dims={"x": ["n", 3, "h", "w"]}, tolerance=APPROXIMATE),
    _resize("cubic_64", (2.0, 1.5), mode="cubic", dtype=np.float64), _resize("no_images", (2.0, 1.5), mode="cubic", shape=(0, 3, 4, 5)),
]  # fmt: skip
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
    channels = {"x": values(2, 5, 7, 9), "roi": None, "scales": np.array([1, 2, 1, 3], np.float32)}
    refused(Case("channels", "Resize", channels, constants=("scales",), dynamic=False), "batch or channels")
    more = {"x": values(2, 5, 7, 9), "roi": None, "scales": np.array([1, 1, 2, 1, 1], np.float32)}
    refused(
        Case("more", "Resize", more, constants=("scales",), dynamic=False),
        "4 axes can't have 5 scales|shapes can't be inferred",
    )
    volume = _resize("volume", (2.0, 2.0, 2.0), shape=(1, 2, 3, 4, 5), axes=(2, 3, 4), mode="cubic")
    refused(volume, "volumes with mode=cubic")
    refused(_resize("antialias", (0.5, 0.5), mode="linear", antialias=1), "antialias is not supported")
    crop = _resize("crop", (2.0, 2.0), coordinate_transformation_mode="tf_crop_and_resize")
    refused(crop, "can't have a region of 0 numbers")
