"""ConvTranspose, which has no op of its own: it becomes a convolution and moves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused
from tests.tolerances import APPROXIMATE, WIDE


def _case(
    name: str, kernel: Sequence[int], *, group: int = 1, bias: bool = False, dynamic: bool = True, **attributes: object
) -> Case:
    image = attributes.pop("image", (5, 7))
    inputs = {"x": values(2, 6, *image), "w": values(6, 8 // group, *kernel, seed=1, low=-1, high=1)}  # type: ignore[misc]
    if bias:
        inputs["b"] = values(8, seed=2)
    attributes |= {"group": group}
    return Case(name, "ConvTranspose", inputs, attributes, ("w", "b"), tolerance=(APPROXIMATE, WIDE), dynamic=dynamic)


CASES = [
    _case("2_by_2", (2, 2), strides=[2, 2], bias=True), _case("4_by_2", (4, 4), strides=[2, 2], pads=[1, 1, 1, 1]),
    _case("3_by_2", (3, 3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]), _case("plain", (3, 2)),
    _case("uneven", (3, 5), strides=[3, 2], pads=[0, 1, 2, 0]), _case("sparse", (1, 2), strides=[3, 4]),
    _case("reaches_beyond", (2, 2), strides=[2, 2], output_padding=[1, 0]), _case("dilated", (2, 3), dilations=[3, 2], strides=[2, 1]),
    _case("groups", (3, 3), group=2, strides=[2, 2], bias=True), _case("line", (4,), image=(9,), strides=[2], pads=[1, 1]),
    _case("same", (3, 3), strides=[2, 2], auto_pad="SAME_UPPER", dynamic=False), _case("same_lower", (3, 3), strides=[2, 2], auto_pad="SAME_LOWER", dynamic=False),
    _case("volume", (2, 2, 2), image=(3, 4, 5), strides=[2, 2, 2], bias=True), _case("volume_plain", (3, 1, 2), image=(3, 4, 5)),
    _case("volume_uneven", (3, 2, 4), image=(3, 4, 2), strides=[2, 1, 3], pads=[1, 0, 2, 0, 1, 1], output_padding=[1, 0, 0]),
    _case("volume_groups", (2, 3, 2), image=(4, 3, 3), strides=[1, 2, 2], dilations=[2, 1, 3], group=2),
    _case("volume_same", (3, 3, 3), image=(2, 3, 4), strides=[2, 2, 2], auto_pad="SAME_UPPER", dynamic=False),
    _case("volume_sized", (3, 3, 2), image=(2, 3, 4), strides=[2, 3, 1], output_shape=[5, 9, 5], dynamic=False),
    _case("line_groups", (3,), image=(9,), strides=[3], dilations=[2], output_padding=[2], group=2, bias=True),
    _case("depthwise", (3, 3), group=2, strides=[2, 1], pads=[1, 1, 1, 1]),
    _case("sized", (3, 3), strides=[2, 3], output_shape=[11, 20], dynamic=False), _case("one_pixel", (3, 3), image=(1, 1), strides=[2, 2]),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv_transpose(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_what_is_not_supported_is_refused() -> None:
    computed = Case("computed", "ConvTranspose", {"x": values(1, 2, 4, 4), "w": values(2, 3, 2, 2)})
    refused(computed, "needs constant filters with 4 dims")
    refused(_case("more", (2, 2, 2, 2), image=(2, 2, 2, 2)), "lines, images and volumes, with 3, 4 and 5 dims")
    uneven = {"x": values(1, 6, 4, 4), "w": values(6, 3, 2, 2)}
    refused(
        Case("groups", "ConvTranspose", uneven, {"group": 4}, ("w",)), "can't have 4 groups|shapes can't be inferred"
    )
