"""gemm.h against numpy in float64, over sizes around the tiles and panels of the kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tests.cpp.remote import call

pytestmark = pytest.mark.build
RNG = np.random.default_rng(4)
TYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
EPSILON = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.fixture(scope="module")
def driver(load_driver: Callable[[str], ctypes.CDLL]) -> ctypes.CDLL:
    lib = load_driver("product_driver")
    lib.packed_count.restype = ctypes.c_int64
    return lib


Blocking = tuple[int, int, int, int]  # depth, band, work and prefetch, as in gemm.h


def gemm(
    lib: ctypes.CDLL, a: np.ndarray, b: np.ndarray, bias: np.ndarray, blocking: Blocking = (768, 128, 100000, 1)
) -> np.ndarray:
    """a @ b + bias; rows of a and both axes of b may be strided, and b may be bfloat16 with the rest float32."""
    (rows, depth), columns = a.shape, b.shape[1]
    name = str(b.dtype).encode()
    packed = np.full(call(lib.packed_count, name, depth, columns), 99).astype(b.dtype)
    out = np.full((rows, columns), 99).astype(a.dtype)
    strides = (stride // b.itemsize for stride in b.strides)
    sizes = (
        rows,
        columns,
        depth,
        a,
        a.strides[0] // a.itemsize if rows else 0,
        b,
        *strides,
        bias,
        packed,
        out,
        *blocking,
    )
    if a.dtype == b.dtype:
        assert call(lib.gemm_array, name, *sizes) == 1
    else:
        call(lib.gemm_widening, *sizes)
    np.testing.assert_array_equal(packed.astype(np.float64), panels_of(b).astype(np.float64))
    return out


def panels_of(b: np.ndarray) -> np.ndarray:
    """b as it is packed: panels of columns, in bfloat16 with pairs of k for numbers."""
    depth, columns = b.shape
    width = 8 if b.dtype == np.float64 else 16
    pair = 2 if b.dtype == ml_dtypes.bfloat16 else 1
    wide = np.zeros((-(-depth // pair) * pair, -(-columns // width) * width), b.dtype)
    wide[:depth, :columns] = b
    return wide.reshape(wide.shape[0] // pair, pair, wide.shape[1] // width, width).transpose(2, 0, 3, 1).ravel()


SIZES = [(1, 1, 1), (2, 16, 3), (3, 15, 7), (5, 17, 64), (6, 32, 65), (7, 33, 1), (11, 48, 255), (13, 5, 257),
         (128, 40, 31), (129, 19, 40), (263, 100, 64), (4, 300, 769), (0, 5, 5), (5, 0, 5), (5, 5, 0)]  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_gemm(dtype: str, size: tuple[int, int, int], lib: ctypes.CDLL) -> None:
    M, N, K = size
    a = RNG.standard_normal((M, K + 3)).astype(TYPES[dtype])[:, :K]
    b, bias = RNG.standard_normal((K, N)).astype(a.dtype), RNG.standard_normal(N).astype(a.dtype)
    wide_a, wide_b, wide_bias = (x.astype(np.float64) for x in (a, b, bias))
    expected = wide_a @ wide_b + wide_bias
    # One rounding to the type, and K roundings in the type summed in.
    summed = (np.abs(wide_a) @ np.abs(wide_b)) * (K + 2) * min(EPSILON[dtype], 2.0**-24)
    tolerance = summed + (np.abs(expected) + 1) * EPSILON[dtype] * 2
    assert (np.abs(gemm(lib, a, b, bias).astype(np.float64) - expected) <= tolerance).all()


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_gemm_of_narrow_weights(size: tuple[int, int, int], lib: ctypes.CDLL) -> None:
    """float32 times bfloat16: as exact as float32 times the same numbers in float32."""
    M, N, K = size
    a = RNG.standard_normal((M, K + 3)).astype(np.float32)[:, :K]
    b, bias = RNG.standard_normal((K, N)).astype(ml_dtypes.bfloat16), RNG.standard_normal(N).astype(np.float32)
    np.testing.assert_array_equal(gemm(lib, a, b, bias), gemm(lib, a, b.astype(np.float32), bias))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_follows_a_row_of_pairs_is_not_read(number: float, lib: ctypes.CDLL) -> None:
    """The last k of an odd number is no pair with what is behind it."""
    wide = np.full((9, 8), number).astype(ml_dtypes.bfloat16)
    a, b = wide[:, :7], np.ones((7, 40)).astype(ml_dtypes.bfloat16)
    a[:] = 1
    for rows in (1, 2, 9):
        assert (gemm(lib, a[:rows], b, np.zeros(40).astype(b.dtype)).astype(np.float32) == 7).all()


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_integer_gemm_wraps(dtype: str, size: tuple[int, int, int], lib: ctypes.CDLL) -> None:
    M, N, K = size
    info = np.iinfo(dtype)
    a, b, bias = (RNG.integers(info.min, info.max, s, dtype=dtype) for s in ((M, K), (K, N), (N,)))
    np.testing.assert_array_equal(gemm(lib, a, b, bias), a @ b + bias)


@pytest.mark.parametrize("N", [16, 50])
def test_gemm_with_any_strides_of_b(N: int, lib: ctypes.CDLL) -> None:
    a, bias = RNG.integers(-5, 5, (9, 70)).astype(np.float32), np.zeros(N, np.float32)
    b = RNG.integers(-5, 5, (N, 70)).astype(np.float32)
    np.testing.assert_array_equal(gemm(lib, a, b.T, bias), a @ b.T)
    wide = RNG.integers(-5, 5, (140, 2 * N)).astype(np.float32)[::2, ::2]
    np.testing.assert_array_equal(gemm(lib, a, wide, bias), a @ wide)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_does_not_depend_on_the_others_or_the_threads(dtype: str, driver: ctypes.CDLL) -> None:
    kind = np.dtype(TYPES[dtype])
    a, b = RNG.standard_normal((301, 900)).astype(kind), RNG.standard_normal((900, 70)).astype(kind)
    bias = np.zeros(70, kind)
    whole = gemm(driver, a, b, bias)
    driver.set_threads(4)
    assert gemm(driver, a, b, bias).tobytes() == whole.tobytes()
    driver.set_threads(1)
    for begin, end in ((0, 1), (5, 7), (17, 40), (100, 232)):
        assert gemm(driver, a[begin:end], b, bias).tobytes() == whole[begin:end].tobytes()


@pytest.mark.parametrize(
    "blocking", [(1, 1, 1, 0), (7, 5, 1, 1), (256, 6, 10**9, 0), (10**9, 256, 10**4, 1), (768, 999, 1, 0)], ids=str
)
def test_no_blocking_changes_a_result(blocking: Blocking, lib: ctypes.CDLL) -> None:
    for rows, columns, depth in (
        (1, 1, 1),
        (1, 130, 33),
        (2, 49, 17),
        (3, 65, 800),
        (6, 16, 8),
        (7, 17, 9),
        (263, 33, 5),
    ):
        a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in ((rows, depth), (depth, columns)))
        bias = RNG.standard_normal(columns).astype(np.float32)
        assert gemm(lib, a, b, bias, blocking).tobytes() == gemm(lib, a, b, bias).tobytes(), (rows, columns, depth)


@pytest.mark.parametrize("size", [(1, 3, 5, 7), (30, 9, 17, 33), (5, 140, 64, 20), (0, 2, 2, 2)], ids=str)
def test_batched_product(size: tuple[int, int, int, int], lib: ctypes.CDLL) -> None:
    batch, M, N, K = size
    a, b = RNG.integers(-9, 9, (batch, M, K)).astype(np.float32), RNG.integers(-9, 9, (batch, K, N)).astype(np.float32)
    packed, out = (
        np.empty(batch * call(lib.packed_count, b"float32", K, N), np.float32),
        np.empty((batch, M, N), np.float32),
    )
    call(lib.bmm_float, batch, M, N, K, a, b, packed, out)
    np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize("N", [1, 7, 8, 9, 16, 24, 25, 32, 48, 70])
@pytest.mark.parametrize("bounds", [(0.0, 6.0), (-np.inf, np.inf), (0.0, np.inf), (np.nan, 1.0)], ids=str)
def test_clamped_sums_are_the_same_by_tiles(N: int, bounds: tuple[float, float], lib: ctypes.CDLL) -> None:
    """In registers or through memory, half a panel or a whole one, one block of k or several."""
    rng = np.random.default_rng(N)
    for M, K in ((1, 1), (5, 3), (9, 16), (43, 40), (100, 130)):
        a, b = rng.standard_normal((M, K)).astype(np.float32), rng.standard_normal((K, N)).astype(np.float32)
        a[0, 0] = np.nan
        bias = rng.standard_normal(N).astype(np.float32)
        low, high = (ctypes.c_float(bound) for bound in bounds)
        found = []
        for by_tiles, depth in ((0, 64), (1, 64), (1, 512)):
            packed = np.full(call(lib.packed_count, b"float32", K, N), 99, np.float32)
            out = np.full((M, N), 99, np.float32)
            call(lib.gemm_clamped, M, N, K, a, b, bias, low, high, by_tiles, depth, packed, out)
            found.append(out)
        assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
        with np.errstate(invalid="ignore"):
            total = a.astype(np.float64) @ b + bias
            raised = np.where(total < bounds[0], bounds[0], total)
            expected = np.where(raised > bounds[1], bounds[1], raised)
        np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5)
