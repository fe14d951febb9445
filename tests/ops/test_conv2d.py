from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import ortisan
from ortisan.codegen.cpu.kernels.images import ConvContext
from tests.ops.arrays import BFLOAT16, values
from tests.ops.harness import Case, refused
from tests.ops.images import check_reference
from tests.tolerances import APPROXIMATE, WIDE
from tests.tolerances import WINOGRAD as TRANSFORMED

SUMS = (APPROXIMATE, WIDE)


def _conv(
    name: str,
    channels: int,
    filters: int,
    kernel: Sequence[int],
    *,
    group: int = 1,
    bias: bool = False,
    image: Sequence[int] = (9, 7),
    batch: int = 2,
    dtype: type[np.floating] = np.float32,
    dynamic: bool = True,
    ort: bool = True,
    **attributes: object,
) -> Case:
    inputs = {
        "x": values(batch, channels, *image, dtype=dtype),
        "w": values(filters, channels // group, *kernel, seed=1, dtype=dtype, low=-1, high=1),
    }
    if bias:
        inputs["b"] = values(filters, seed=2, dtype=dtype)
    return Case(
        name, "Conv", inputs, {**attributes, "group": group}, ("w", "b"), tolerance=SUMS, dynamic=dynamic, ort=ort
    )


AROUND = {"pads": [1, 1, 1, 1]}
CASES = [
    _conv("1x1", 4, 6, (1, 1)), _conv("3x3", 4, 6, (3, 3), **AROUND, bias=True), _conv("strided", 3, 5, (3, 3), strides=[2, 2], pads=[1, 0, 2, 1]),
    _conv("dilated", 4, 2, (2, 3), dilations=[2, 3]), _conv("depthwise", 6, 6, (3, 3), group=6, bias=True), _conv("groups", 6, 4, (3, 1), group=2),
    _conv("valid", 2, 2, (3, 3), auto_pad="VALID"), _conv("tall", 2, 2, (5, 1), strides=[3, 1]),
    _conv("line", 17, 3, (5,), image=(23,), pads=[4, 0]), _conv("strided_line", 5, 33, (3,), image=(40,), strides=[2], dilations=[3]),
    _conv("same_upper", 3, 4, (4, 3), auto_pad="SAME_UPPER"), _conv("same_lower", 3, 4, (4, 3), auto_pad="SAME_LOWER"),
    _conv("same_dynamic", 3, 4, (3, 3), auto_pad="SAME_UPPER", strides=[2, 3]), _conv("same_dynamic_lower", 3, 4, (4, 1), auto_pad="SAME_LOWER", strides=[3, 2]),
    _conv("same_dynamic_dilated", 3, 4, (2, 3), ort=False, auto_pad="SAME_LOWER", dilations=[1, 2], strides=[2, 4]), _conv("same_dynamic_line", 3, 4, (5,), image=(9,), auto_pad="SAME_UPPER", strides=[2]),
    _conv("same_strided", 3, 4, (3, 3), auto_pad="SAME_UPPER", strides=[2, 3], dynamic=False),
    _conv("1x1_strided", 64, 17, (1, 1), strides=[2, 2]), _conv("1x1_padded", 17, 3, (1, 1), **AROUND),
    _conv("whole_image", 17, 5, (9, 7), dynamic=False, bias=True), _conv("double", 17, 20, (3, 3), dtype=np.float64, **AROUND, ort=False),
]  # fmt: skip
# Every way of the kernel: gathered pixels, tiles at the edges, tiles inside, rows of few pixels, panels that are not full.
CASES += [
    _conv(f"{channels}_to_{filters}_{kernel}_on_{image[0]}x{image[1]}", channels, filters, (kernel, kernel), image=image, pads=[kernel // 2] * 4)
    for channels, filters in ((1, 1), (3, 17), (17, 64), (64, 3), (64, 40))
    for kernel in (3, 5)
    for image in ((1, 1), (7, 5), (1, 19), (8, 22))
]  # fmt: skip
CASES += [
    _conv(f"wider_than_image_{channels}", channels, 5, (3, 9), image=(4, 5), pads=[1, 4, 1, 4]) for channels in (3, 32)
]
CASES += [
    _conv(f"grouped_{channels}_{filters}_{group}", channels, filters, (3, 3), group=group, **AROUND, bias=True)
    for channels, filters, group in ((34, 68, 2), (64, 64, 2), (8, 8, 4), (96, 6, 3), (4, 8, 4))
]
CASES += [
    _conv(f"depthwise_{channels}_{kernel}_{strides}_{dilation}", channels, channels, (kernel, kernel), group=channels, image=(11, 21), pads=[kernel // 2] * 4, strides=[strides] * 2, dilations=[dilation] * 2)
    for channels, kernel, strides, dilation in ((1, 3, 1, 1), (3, 5, 1, 1), (5, 3, 2, 1), (17, 7, 1, 1), (24, 3, 1, 2), (64, 5, 2, 1), (600, 3, 1, 1))
]  # fmt: skip
CASES += [
    _conv(f"dots_{channels}_{filters}_{kernel}_{dilation}", channels, filters, (kernel, kernel), image=(9, 20), pads=[kernel // 2] * 4, strides=[strides] * 2, dilations=[dilation] * 2, bias=True)
    for channels, filters, kernel, strides, dilation in ((16, 1, 3, 1, 1), (33, 2, 3, 2, 1), (7, 3, 5, 1, 1), (40, 4, 3, 1, 2))
] + [_conv("long_line", 1, 1, (256,), image=(900,), strides=[2], pads=[100, 7])]  # fmt: skip
# By Winograd's algorithm: whole tiles and parts of them, more than a band, panels that are not full.
WINOGRAD = [
    _conv(f"winograd_{channels}_{filters}_{image[0]}x{image[1]}", channels, filters, (3, 3), image=image, bias=True, pads=pads, batch=3, dynamic=dynamic)
    for channels, filters, image, pads, dynamic in ((16, 64, (16, 20), [1] * 4, False), (32, 40, (30, 21), [0, 1, 1, 0], False), (64, 33, (2, 2), [1] * 4, True), (48, 80, (5, 70), [2, 1, 0, 3], True))
]  # fmt: skip
WINOGRAD = [
    replace(case, tolerance=(APPROXIMATE, TRANSFORMED), dims={"x": ["n", case.inputs["w"].shape[1], "h", "w"]} if case.dynamic else {})
    for case in WINOGRAD
]  # fmt: skip
CASES += WINOGRAD
# Volumes.
CASES += [
    _conv("3d", 4, 6, (3, 3, 3), image=(5, 9, 7), pads=[1] * 6, bias=True), _conv("3d_first", 3, 17, (5, 1, 3), image=(6, 4, 9)),
    _conv("3d_strided", 5, 8, (3, 2, 3), image=(8, 7, 9), strides=[2, 3, 1], dilations=[2, 1, 2], pads=[2, 0, 1, 1, 2, 3]),
    _conv("3d_groups", 6, 4, (2, 3, 3), image=(4, 6, 5), group=2, bias=True), _conv("3d_depthwise", 5, 5, (3, 3, 3), image=(4, 6, 5), group=5, pads=[1] * 6),
    _conv("3d_1x1x1", 17, 3, (1, 1, 1), image=(3, 4, 5)), _conv("3d_every_other", 4, 3, (1, 3, 3), image=(5, 4, 5), strides=[2, 1, 1]),
    _conv("3d_same", 2, 3, (2, 3, 4), image=(5, 4, 6), auto_pad="SAME_UPPER"), _conv("3d_wider", 2, 3, (7, 3, 3), image=(2, 4, 5), pads=[3, 1, 1, 3, 1, 1]),
    _conv("3d_nothing", 2, 3, (3, 3, 3), image=(2, 4, 5), dynamic=False, ort=False),
]  # fmt: skip
CASES += [
    _conv("no_batch", 3, 4, (3, 3), batch=0, **AROUND, ort=False), _conv("no_output", 3, 4, (3, 3), image=(2, 5), dynamic=False, ort=False),
    _conv("depthwise_of_nothing", 5, 5, (3, 3), group=5, image=(0, 4), **AROUND, ort=False),
]  # fmt: skip


# Filters that are known at run time only.
COMPUTED = [
    replace(case, name=f"computed_{case.name}", constants=("b",), dims={"w": case.inputs["w"].shape, **case.dims})
    for case in CASES
    if case.name in ("1x1", "3x3", "strided", "depthwise", "groups", "line", "3d", "double", "dots_16_1_3_1_1", "winograd_16_64_16x20", "no_batch")
]  # fmt: skip
COMPUTED += [
    replace(case, name=f"{case.name}_static", dynamic=False, dims={})
    for case in COMPUTED
    if case.name == "computed_depthwise"
]
CASES += COMPUTED
SMALL = (2e-2, 2e-2)
CASES += [
    replace(_conv(f"{name}_{np.dtype(dtype).name}", channels, filters, (kernel, kernel), group=group, dtype=dtype, ort=False, bias=True, pads=[kernel // 2] * 4), tolerance=SMALL)
    for dtype in (np.float16, BFLOAT16)
    for name, channels, filters, kernel, group in (("few", 3, 2, 3, 1), ("tiles", 17, 40, 3, 1), ("depthwise", 20, 20, 3, 20), ("pointwise", 20, 9, 1, 1))
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_the_reference_is_the_same_everywhere() -> None:
    for case in CASES[:12]:
        check_reference(case)


def test_what_is_not_supported_is_refused() -> None:
    refused(_conv("both", 2, 2, (3, 3), auto_pad="SAME_UPPER", pads=[1, 1, 1, 1]), "both pads and auto_pad=SAME_UPPER")
    refused(
        _conv("other", 2, 2, (3, 3), kernel_shape=[5, 5]), "a kernel_shape of .5, 5., and filters of .3, 3.|inferred"
    )
    more = Case("more", "Conv", {"x": values(1, 2, 3, 3, 3, 3), "w": values(2, 2, 1, 1, 1, 1)}, constants=("w",))
    refused(more, "lines, images and volumes, with 3, 4 and 5 dims")
    deep = _conv("deep", 2, 2, (5, 1, 1), image=(3, 4, 4), dynamic=False)
    refused(deep, "the output of a convolution: -1 is below 0")
    refused(_conv("negative", 2, 2, (3, 3), pads=[-1, 0, 0, 0]), "pads of .* are not supported")


def _functions(case: Case, **options: bool) -> set[str]:
    """What computes the convolution of a case, with its channels known."""
    known = case if case.dims else replace(case, dynamic=False)
    (plan,) = ortisan.compile(known.model(), whole_graph=True, **options).plans
    return {kernel.context.function for kernel in plan.kernels if isinstance(kernel.context, ConvContext)}


def test_which_kernel_computes_what() -> None:
    named = {case.name: case for case in CASES}
    assert all(_functions(case) == {"winograd2d"} for case in WINOGRAD)
    assert all(_functions(case, winograd=False) == {"conv2d"} for case in WINOGRAD)
    assert _functions(named["depthwise_24_3_1_2"]) == {"depthwise2d"}
    assert _functions(named["long_line"]) == {"dot2d"}
    assert _functions(named["grouped_34_68_2"]) == {"conv2d"}
    assert _functions(named["computed_depthwise_static"]) == {"depthwise2d"}
    assert all(_functions(case) <= {"depthwise2d", "conv2d"} for case in COMPUTED)
    assert _functions(named["1x1"]) == _functions(named["whole_image"]) == set()
