from __future__ import annotations

import numpy as np
import pytest

import ortisan
from tests.ops.arrays import values
from tests.ops.harness import Case, refused
from tests.tolerances import BLOCK

ROIS = np.array(
    [
        [0, 0, 9, 7],
        [1.3, 2.1, 5.6, 6.2],
        [-3, -2, 4, 3],
        [6, 5, 15, 13],
        [4, 4, 4.2, 4.1],
        [5, 5, 2, 2],
        [20, 20, 30, 30],
    ],
    np.float32,
)
IMAGES = np.array([0, 1, 0, 1, 1, 0, 0])


def _case(name: str, shape: tuple[int, ...] = (2, 3, 8, 10), *, opset: int = 16, **attributes: object) -> Case:
    rois = attributes.pop("rois", ROIS)
    inputs = {"x": values(*shape), "rois": rois, "images": IMAGES[: len(rois)]}  # type: ignore[arg-type]
    attributes = {"output_height": 3, "output_width": 2, "spatial_scale": 1.0, **attributes}
    ort = len(rois) > 0 and opset < 22
    return Case(name, "RoiAlign", inputs, attributes, opset=opset, tolerance=BLOCK, ort=ort)  # type: ignore[arg-type]


CASES = [
    _case(f"{mode}_{samples}_{how}", mode=mode, sampling_ratio=samples, coordinate_transformation_mode=how)
    for mode in ("avg", "max")
    for samples in (0, 1, 3)
    for how in ("half_pixel", "output_half_pixel")
]
CASES += [
    _case("opset_10", opset=10, sampling_ratio=2),
    _case("opset_22", opset=22, sampling_ratio=2),
    _case("scaled", spatial_scale=0.25, output_height=7, output_width=7),
    _case("channels", (2, 67, 5, 5), output_height=1, output_width=1),
    _case("one_pixel", (2, 1, 1, 1)),
    _case("no_regions", rois=ROIS[:0]),
]


def _special() -> Case:
    rois = ROIS.copy()
    rois[0, 0], rois[1, 2], rois[2] = np.nan, np.inf, (-1e30, -1e30, 1e30, 1e30)
    x = values(2, 3, 8, 10)
    x[0, 1, 2:5, 2:7], x[1, 2, 2, 2] = np.nan, np.inf
    inputs = {"x": x, "rois": rois[3:], "images": IMAGES[3:]}
    return Case("special", "RoiAlign", inputs, {"sampling_ratio": 2, "output_height": 2}, opset=16, ort=False)


CASES.append(_special())


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_roi_align(case: Case, batch) -> None:
    batch(CASES).check(case)


@pytest.mark.build
def test_regions_beyond_all_bounds_end(tmp_path) -> None:
    """ONNX Runtime would count the samples of a region of 1e30 pixels one by one."""
    rois = np.float32([[np.nan, 0, 4, 4], [0, 0, np.inf, 4], [-1e30, -1e30, 1e30, 1e30], [-1e6, -1e6, 1e6, 1e6]])
    case = Case("huge", "RoiAlign", {"x": values(1, 2, 8, 8), "rois": rois, "images": np.zeros(4, np.int64)}, opset=16)
    ortisan.build(case.model(), tmp_path / "huge", keep="all", verify=False, tune="off")
    (y,) = ortisan.load(tmp_path / "huge").run(None, case.feeds())
    assert y.shape == (4, 2, 1, 1)
    assert np.isfinite(y[2:]).all()


@pytest.mark.build
def test_a_region_of_no_image_is_an_error(tmp_path) -> None:
    case = _case("wrong")
    ortisan.build(case.model(), tmp_path / "wrong", keep="all", verify=False, tune="off")
    session = ortisan.load(tmp_path / "wrong")
    with pytest.raises(Exception, match="a region is of an image that is not in the batch"):
        session.run(None, {**case.feeds(), "images": IMAGES + 1})


def test_what_is_not_supported_is_refused() -> None:
    refused(_case("mode", mode="median"), "mode=median")
    refused(_case("bins", output_height=0), "bins of 0 samples is not defined")
