"""The kernels over images against their numpy references, every kernel forced over odd sizes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from ortisan.codegen.cpu.kernels.images import winograd_band
from ortisan.codegen.cpu.packing import pack
from ortisan.registry.graph import DimValues
from ortisan.registry.ops import Conv2d, Pool2d, Resize2d
from tests.cpp.remote import call

pytestmark = pytest.mark.build
NO_DIMS = DimValues({})


@pytest.fixture(scope="module")
def driver(load_driver: Callable[[str], ctypes.CDLL]) -> ctypes.CDLL:
    return load_driver("image_driver")


@dataclass(frozen=True)
class Size:
    """A convolution; the batch, the image, the channels, the filters."""

    kernel: str
    images: int
    image: tuple[int, int]
    channels: int
    filters: int
    window: tuple[int, int]
    op: Conv2d

    def __str__(self) -> str:
        sizes = (*self.image, self.channels, self.filters, *self.window, *self.op.strides, *self.op.pads, self.op.group)
        return f"{self.kernel}_{self.images}x{'_'.join(map(str, sizes))}"

    def tensors(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng([self.channels, self.filters, *self.image, *self.window])
        x = rng.standard_normal((self.images, *self.image, self.channels)).astype(np.float32)
        w = rng.standard_normal((self.filters, *self.window, self.channels // self.op.group)).astype(np.float32)
        return x, w


def packed(size: Size, w: np.ndarray) -> np.ndarray:
    if size.kernel == "depthwise2d":
        return pack(w, "taps")
    if size.kernel == "dot2d":
        return pack(w, "plain")
    if size.kernel == "winograd2d":
        return pack(w, "winograd")
    group = size.op.group
    return pack(w.reshape(group, size.filters // group, -1), "panels_rcr")


def convolve(
    lib: ctypes.CDLL, size: Size, x: np.ndarray, w: np.ndarray, *, band: int = 128, work: int = 100, wave: int = 2
) -> np.ndarray:
    shape = size.op.reference([x, w], NO_DIMS)[0].shape
    sizes = _numbers(size, x, shape)
    out = np.full(shape, 99, np.float32)
    workspace = np.full(wave * winograd_band(size.channels) if size.kernel == "winograd2d" else 1, 99, np.float32)
    given = np.array(sizes, np.int64), x, packed(size, w), band, work, wave, workspace, out
    assert call(lib.convolve, size.kernel.encode(), *given) == 1
    return out


def _numbers(size: Size, x: np.ndarray, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The fields of ConvShape."""
    op = size.op
    return (*x.shape, *shape[1:], *size.window, *op.strides, *op.pads[:2], *op.dilations, op.group)


def around(rows: int, columns: int) -> tuple[int, int, int, int]:
    return rows // 2, columns // 2, rows // 2, columns // 2


def _sizes() -> list[Size]:
    images = ((1, 1), (7, 5), (1, 19), (8, 22))
    found = [
        Size("conv2d", 2, image, channels, filters, window, Conv2d(pads=around(*window)))
        for image in images
        for channels, filters in ((1, 17), (3, 64), (17, 1), (64, 33))
        for window in ((1, 1), (3, 3), (1, 9), (5, 2))
    ]
    found += [
        Size("conv2d", 2, image, channels, filters, (3, 3), op)
        for image in ((7, 5), (9, 40))
        for channels, filters, op in (
            (64, 40, Conv2d((2, 2), (1, 1, 1, 1))),
            (3, 20, Conv2d((3, 2), (0, 2, 1, 1))),
            (20, 20, Conv2d(pads=(2, 2, 2, 2), dilations=(2, 2))),
            (36, 72, Conv2d(pads=(1, 1, 1, 1), group=2)),
            (6, 9, Conv2d(pads=(1, 1, 1, 1), group=3)),
            (64, 16, Conv2d(pads=(4, 4, 4, 4))),
        )
    ]
    found += [
        Size("depthwise2d", 2, image, channels, channels, window, Conv2d(strides, around(*window), group=channels))
        for image in images
        for channels in (1, 3, 17, 64, 600)
        for window, strides in (
            ((3, 3), (1, 1)),
            ((5, 5), (2, 2)),
            ((3, 3), (2, 2)),
            ((2, 5), (3, 1)),
            ((7, 7), (1, 1)),
        )
    ]
    found += [
        Size("depthwise2d", 2, image, channels, channels, window, replace(op, group=channels))
        for image in ((1, 1), (3, 2), (9, 40))
        for channels in (17, 64, 144)
        for window, op in (
            ((3, 3), Conv2d(pads=(4, 4, 4, 4))),
            ((3, 5), Conv2d((2, 1), (1, 0, 1, 0))),
            ((5, 3), Conv2d((1, 2), (2, 3, 2, 5))),
            ((3, 3), Conv2d(pads=(2, 2, 2, 2), dilations=(2, 1))),
            ((3, 3), Conv2d(pads=(2, 2, 2, 2), dilations=(1, 2))),
        )
    ]
    found += [
        Size("dot2d", 2, image, channels, filters, (3, 3), Conv2d(pads=(1, 1, 1, 1), dilations=dilations))
        for image in images
        for channels, filters in ((16, 1), (17, 3), (64, 4))
        for dilations in ((1, 1), (2, 1))
    ]
    found += [
        Size("winograd2d", 3, image, channels, filters, (3, 3), Conv2d(pads=pads))
        for image in (*images, (14, 14), (30, 17))
        for channels, filters in ((16, 17), (64, 70))
        for pads in ((1, 1, 1, 1), (0, 2, 2, 1))
    ]
    return [size for size in found if min(_output(size)) > 0]


def _output(size: Size) -> tuple[int, ...]:
    op = size.op
    return tuple(
        (size.image[a] + op.pads[a] + op.pads[a + 2] - op.dilations[a] * (size.window[a] - 1) - 1) // op.strides[a] + 1
        for a in (0, 1)
    )


SIZES = _sizes()


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_convolution(size: Size, lib: ctypes.CDLL) -> None:
    x, w = size.tensors()
    (expected,) = size.op.reference([x, w], NO_DIMS)
    (scale,) = size.op.reference([np.abs(x), np.abs(w)], NO_DIMS)
    bound = 1e-5 if size.kernel == "winograd2d" else 2.0**-24 * (w[0].size + 2)
    assert (np.abs(convolve(lib, size, x, w) - expected) <= bound * scale + 1e-6).all()


@pytest.mark.parametrize("size", SIZES[::5], ids=str)
def test_an_image_does_not_depend_on_the_batch_nor_on_how_work_is_cut(size: Size, driver: ctypes.CDLL) -> None:
    x, w = size.tensors()
    whole = convolve(driver, size, x, w)
    for threads in (2, 3, 7):
        driver.set_threads(threads)
        assert convolve(driver, size, x, w, band=40, work=1, wave=1).tobytes() == whole.tobytes()
    driver.set_threads(1)
    assert convolve(driver, size, x, w, band=7, work=10**9, wave=50).tobytes() == whole.tobytes()
    for index in range(size.images):
        assert convolve(driver, size, x[index : index + 1], w).tobytes() == whole[index].tobytes()


@pytest.mark.parametrize("size", [s for s in SIZES if s.kernel in ("conv2d", "depthwise2d")][::3], ids=str)
def test_a_clamp_by_the_kernel_is_that_of_its_epilogue(size: Size, lib: ctypes.CDLL) -> None:
    x, w = size.tensors()
    bias = np.random.default_rng(0).standard_normal(size.filters).astype(np.float32)
    (sums,) = size.op.reference([x, w], NO_DIMS)
    sizes = np.array(_numbers(size, x, sums.shape), np.int64)
    found = []
    for by_kernel in (0, 1):
        out = np.full(sums.shape, 99, np.float32)
        assert call(lib.convolve_clamped, size.kernel.encode(), sizes, x, packed(size, w), bias, by_kernel, out) == 1
        found.append(out)
    assert found[0].tobytes() == found[1].tobytes()
    np.testing.assert_allclose(found[0], np.clip(sums + bias, 0, 6), rtol=1e-4, atol=1e-4)


POOLS = [
    Pool2d(kind, (3, 2), strides, (1, 1, 1, 0), counts, dilations, ceil)
    for kind in ("max", "mean")
    for strides in ((1, 1), (2, 3))
    for counts in (False, True)
    for dilations in ((1, 1), (2, 1))
    for ceil in (False, True)
]


@pytest.mark.parametrize("image", [(5, 7), (11, 40)], ids=str)
@pytest.mark.parametrize("op", POOLS, ids=str)
def test_pool(op: Pool2d, image: tuple[int, int], lib: ctypes.CDLL) -> None:
    for channels in (1, 5, 19, 530):
        x = np.random.default_rng(channels).standard_normal((2, *image, channels)).astype(np.float32)
        (expected,) = op.reference([x], NO_DIMS)
        sizes = (*x.shape, *expected.shape[1:], *op.kernel, *op.strides, *op.pads[:2], *op.dilations, 1)
        out = np.full(expected.shape, 99, np.float32)
        given = np.array(sizes, np.int64), *op.pads[2:], int(op.counts_padding), x, out
        assert call(lib.pool, op.kind.encode(), *given) == 1
        np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("size", [(1, 1), (3, 90), (40, 5)], ids=str)
def test_resize(mode: str, size: tuple[int, int], lib: ctypes.CDLL) -> None:
    how = ("asymmetric", "floor") if mode == "nearest" else ("half_pixel", "floor")
    for channels in (1, 17):
        x = np.random.default_rng(channels).standard_normal((2, 7, 9, channels)).astype(np.float32)
        op = Resize2d(mode, size, (None, None), *how, excludes_outside=True)  # type: ignore[arg-type]
        (expected,) = op.reference([x], NO_DIMS)
        out = np.full(expected.shape, 99, np.float32)
        sizes = np.array((*x.shape, *size), np.int64)
        assert call(lib.resize, mode.encode(), sizes, x, out) == 1
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
