"""Blocks of a depthwise convolution and the products around it, against numpy, over odd sizes."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from ortisan.codegen.cpu.packing import pack
from ortisan.registry.graph import DimValues
from ortisan.registry.ops import Conv2d
from tests.cpp.remote import call

pytestmark = pytest.mark.build
NO_DIMS = DimValues({})


@pytest.fixture(scope="module")
def driver(load_driver: Callable[[str], ctypes.CDLL]) -> ctypes.CDLL:
    return load_driver("image_driver")


@dataclass(frozen=True)
class Block:
    """`depth` channels are expanded, 0 for none; `filters` is what the convolution is multiplied to, 0 for none."""

    image: tuple[int, int]
    depth: int
    channels: int
    filters: int
    size: int
    stride: int
    pad: int

    def __str__(self) -> str:
        numbers = (*self.image, self.depth, self.channels, self.filters, self.size, self.stride, self.pad)
        return "_".join(map(str, numbers))

    @property
    def op(self) -> Conv2d:
        return Conv2d((self.stride, self.stride), (self.pad,) * 4, group=self.channels)

    def tensors(self) -> tuple[np.ndarray, ...]:
        rng = np.random.default_rng([*self.image, self.depth, self.channels, self.filters])
        shapes = (
            (2, *self.image, self.depth or self.channels),
            (self.channels, self.depth),
            (self.channels, self.size, self.size, 1),
            (self.filters, self.channels),
        )
        x, expanded, taps, projected = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
        return x, expanded, taps, projected

    def bias(self) -> np.ndarray:
        return np.random.default_rng(1).standard_normal(max(self.channels, self.filters)).astype(np.float32)

    def expected(self) -> np.ndarray:
        x, expanded, taps, projected = (tensor.astype(np.float64) for tensor in self.tensors())
        bias = self.bias()
        inner, outer = bias[: self.channels], bias[: self.filters]
        image = np.clip(x @ expanded.T + inner, 0, 6) if self.depth else x
        (y,) = self.op.reference([image, taps], NO_DIMS)
        y = np.clip(y + inner, 0, 6)
        return np.clip(y @ projected.T + outer, 0, 6) if self.filters else y


IMAGES = ((1, 1), (7, 5), (1, 19), (19, 1), (8, 22), (60, 9))
AROUND = ((3, 24), (17, 0), (0, 8), (64, 70))
CHANNELS = (16, 17, 72)
SIZES = ((3, 1), (3, 2), (5, 1), (5, 2))
BLOCKS = [
    Block(image, depth, CHANNELS[index % 3], filters, size, stride, size // 2)
    for index, (image, (depth, filters), (size, stride)) in enumerate(itertools.product(IMAGES, AROUND, SIZES))
]
BLOCKS += [Block((9, 40), depth, 300, filters, 3, 1, 3) for depth, filters in AROUND]
# Rows that are cut into pieces, for what they need does not fit.
BLOCKS += [Block((6, 900), depth, 64, filters, 5, stride, 2) for depth, filters in AROUND for stride in (1, 2)]
BLOCKS += [Block((5, 12), 1, 1024, 1, 5, 1, 2)]


def run(lib: ctypes.CDLL, block: Block, x: np.ndarray, *, by_kernel: bool = True) -> np.ndarray:
    _, expanded, taps, projected = block.tensors()
    rows, columns = block.expected().shape[1:3]
    shape = (*x.shape[:3], block.channels, rows, columns, block.channels)
    sizes = (*shape, block.size, block.size, block.stride, block.stride, block.pad, block.pad, 1, 1, block.channels)
    out = np.full((len(x), rows, columns, block.filters or block.channels), 99, np.float32)
    nothing = np.zeros(1, np.float32)
    factors = pack(expanded, "panels_rcr") if block.depth else nothing
    behind = pack(projected, "panels_rcr") if block.filters else nothing
    numbers = np.array(sizes, np.int64), block.depth, block.filters, int(by_kernel)
    assert call(lib.block, *numbers, x, factors, pack(taps, "taps"), behind, block.bias(), out) == 1
    return out


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block(block: Block, lib: ctypes.CDLL) -> None:
    """With its epilogues in registers and through memory, which give the same bits."""
    x, expected = block.tensors()[0], block.expected()
    found = run(lib, block, x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    assert run(lib, block, x, by_kernel=False).tobytes() == found.tobytes()


@pytest.mark.parametrize("block", [*BLOCKS[::5], *BLOCKS[-9:]], ids=str)
def test_an_image_does_not_depend_on_the_batch_nor_on_the_threads(block: Block, driver: ctypes.CDLL) -> None:
    x = block.tensors()[0]
    whole = run(driver, block, x)
    for threads in (2, 3, 7):
        driver.set_threads(threads)
        assert run(driver, block, x).tobytes() == whole.tobytes()
    driver.set_threads(1)
    for index in range(len(x)):
        assert run(driver, block, x[index : index + 1]).tobytes() == whole[index].tobytes()
