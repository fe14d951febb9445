"""Images, filters and windows that don't fit: the right result, or one sentence that says why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import ortisan
from tests.ops.arrays import values
from tests.ops.harness import Case, refused, run_session
from tests.tolerances import WIDE, assert_close

INFERRED = "shapes can't be inferred"


def _conv(image: tuple[int, ...], filters: tuple[int, ...], *, dynamic: bool = False, **attributes: Any) -> Case:
    inputs = {"x": values(*image), "w": values(*filters, seed=1)}
    return Case("conv", "Conv", inputs, attributes, ("w",), dynamic=dynamic)


def _op(op_type: str, *shapes: tuple[int, ...], **attributes: Any) -> Case:
    inputs = {f"x{index}": values(*shape, seed=index) for index, shape in enumerate(shapes)}
    return Case("op", op_type, inputs, attributes, tuple(f"x{index}" for index in range(1, len(shapes))), dynamic=False)


def _resize(scales: list[float]) -> Case:
    inputs = {"x": values(1, 2, 4, 4), "roi": None, "scales": np.array(scales, np.float32)}
    return Case("resize", "Resize", inputs, {}, ("scales",), dynamic=False)


REFUSED = {
    "kernel_beyond_the_image": (_conv((1, 2, 3, 3), (4, 2, 5, 5)), "the output of a convolution: -1 is below 0"),
    "channels_differ": (_conv((1, 3, 6, 6), (4, 2, 3, 3)), "channels of the image and of the filters differ: 3 and 2"),
    "channels_and_groups": (_conv((1, 3, 6, 6), (4, 1, 3, 3), group=2), "differ: 3 and 2"),
    "filters_and_groups": (_conv((1, 4, 6, 6), (3, 2, 3, 3), group=2), "filters and groups: 3 is not a multiple of 2"),
    "no_groups": (_conv((1, 4, 6, 6), (3, 2, 3, 3), group=0), "differ: 4 and 0"),
    "negative_pads": (_conv((1, 2, 6, 6), (4, 2, 3, 3), pads=[-1, 0, 0, 0]), "pads of .* are not supported"),
    "no_stride": (_conv((1, 2, 6, 6), (4, 2, 3, 3), strides=[0, 1]), INFERRED),
    "one_stride": (_conv((1, 2, 6, 6), (4, 2, 3, 3), strides=[1]), INFERRED),
    "two_pads": (_conv((1, 2, 6, 6), (4, 2, 3, 3), pads=[1, 1]), INFERRED),
    "six_dims": (_conv((1, 2, 3, 3, 3, 3), (2, 2, 1, 1, 1, 1)), "lines, images and volumes, with 3, 4 and 5 dims"),
    "no_places": (_conv((1, 2), (2, 2)), INFERRED),
    "unknown_padding": (_conv((1, 2, 6, 6), (4, 2, 3, 3), auto_pad="SOME"), "auto_pad=SOME is not defined"),
    "other_kernel": (_conv((1, 2, 6, 6), (4, 2, 3, 3), kernel_shape=[5, 5]), "a kernel_shape of .5, 5., and filters of .3, 3."),
    "pool_beyond_the_image": (_op("MaxPool", (1, 2, 3, 3), kernel_shape=[5, 5]), "the output of a pool: -1 is below 0"),
    "pool_of_padding": (_op("MaxPool", (1, 2, 5, 5), kernel_shape=[2, 2], pads=[2] * 4), "as large as the window"),
    "pool_without_kernel": (_op("MaxPool", (1, 2, 5, 5)), "kernel_shape"),
    "transposed_channels": (_op("ConvTranspose", (1, 3, 4, 4), (2, 3, 2, 2)), "differ: 3 and 2"),
    "transposed_kernel": (_op("ConvTranspose", (1, 2, 4, 4), (2, 3, 2, 2), kernel_shape=[3, 3]), "a kernel_shape of|inferred"),
    "no_scale": (_resize([1, 1, 0, 1]), "is not defined"),
    "negative_scale": (_resize([1, 1, -1, 1]), "is not defined"),
    "uneven_blocks": (_op("SpaceToDepth", (1, 6, 5, 4), blocksize=2), "5 is not a multiple of 2"),
    "uneven_depth": (_op("DepthToSpace", (1, 6, 4, 4), blocksize=2), "element counts .* differ"),
    "norm_of_others": (_op("InstanceNormalization", (1, 6, 4, 4), (5,), (6,)), "scale and channels differ: 5 and 6|inferred"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    refused(*REFUSED[name])


RIGHT = {
    "no_images": _conv((0, 2, 6, 6), (4, 2, 3, 3)),
    "no_images_pooled": _op("AveragePool", (0, 2, 4, 3), kernel_shape=[2, 2]),
    "no_images_transposed": _op("ConvTranspose", (0, 2, 4, 5), (2, 3, 2, 2)),
    "no_places_normalised": _op("InstanceNormalization", (1, 6, 0, 4), (6,), (6,)),
    "more_channels_than_there_are": _op("LRN", (1, 3, 4, 4), size=9),
    "an_image_of_one_pixel": _conv((1, 2, 1, 1), (4, 2, 3, 3), pads=[1, 1, 1, 1]),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_fits_barely_is_right(name: str) -> None:
    case = RIGHT[name]
    found = ortisan.compile(case.model(), whole_graph=True, target="reference").run(case.feeds())
    stock = ort.InferenceSession(case.model().SerializeToString())
    for have, want in zip(found, run_session(stock, case.feeds()), strict=True):
        assert_close(have, want, name, WIDE)


# ONNX Runtime fails at these; an output without elements is what the definition says.
EMPTY = {
    "nothing_left": (_conv((1, 2, 4, 4), (4, 2, 5, 5)), (1, 4, 0, 0)),
    "no_rows": (_conv((1, 2, 0, 6), (4, 2, 3, 3), pads=[1, 1, 1, 1]), (1, 4, 0, 6)),
    "no_filters": (_conv((1, 2, 6, 6), (0, 2, 3, 3)), (1, 0, 4, 4)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_an_output_without_elements_has_its_shape(name: str) -> None:
    case, shape = EMPTY[name]
    (found,) = ortisan.compile(case.model(), whole_graph=True, target="reference").run(case.feeds())
    assert found.shape == shape
