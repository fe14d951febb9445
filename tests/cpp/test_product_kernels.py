"""gemm.h and attention.h against numpy in float64, over sizes around the tiles, panels and blocks of the kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from remote import Pointer

pytestmark = pytest.mark.build
RNG = np.random.default_rng(4)
TYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
EPSILON = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.fixture(scope="module")
def driver(load_driver: Callable[[str], ctypes.CDLL]) -> ctypes.CDLL:
    lib = load_driver("product_driver")
    lib.packed_count.restype = ctypes.c_int64
    return lib


@pytest.fixture(params=[1, 3], ids=["serial", "threads"])
def lib(request: pytest.FixtureRequest, driver: ctypes.CDLL) -> Iterator[ctypes.CDLL]:
    driver.set_threads(request.param)
    yield driver
    driver.set_threads(1)


def argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return Pointer(value)
    return ctypes.c_int64(value) if isinstance(value, int) else value


def call(function: Any, *arguments: Any) -> Any:
    return function(*[argument(a) for a in arguments])


Cut = tuple[int, int, int, int]  # depth, band, work and fetch of a GemmCut


def gemm(
    lib: ctypes.CDLL, a: np.ndarray, b: np.ndarray, bias: np.ndarray, cut: Cut = (768, 128, 100000, 1)
) -> np.ndarray:
    """a @ b + bias; rows of a and both axes of b may be strided."""
    (rows, depth), columns, size = a.shape, b.shape[1], a.dtype.itemsize
    name = str(a.dtype).encode()
    packed = np.full(call(lib.packed_count, name, depth, columns), 99).astype(a.dtype)
    out = np.full((rows, columns), 99).astype(a.dtype)
    strides = (b.strides[0] // size, b.strides[1] // size)
    sizes = rows, columns, depth, a, a.strides[0] // size if rows else 0, b, *strides, bias, packed, out, *cut
    assert call(lib.gemm_array, name, *sizes) == 1
    width = 8 if a.dtype == np.float64 else 16
    panels = np.zeros((depth, -(-columns // width) * width), a.dtype)
    panels[:, :columns] = b
    expected = panels.reshape(depth, -(-columns // width), width).transpose(1, 0, 2).ravel()
    np.testing.assert_array_equal(packed.astype(np.float64), expected.astype(np.float64))
    return out


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
    "cut", [(1, 1, 1, 0), (7, 5, 1, 1), (256, 6, 10**9, 0), (10**9, 256, 10**4, 1), (768, 999, 1, 0)], ids=str
)
def test_no_cut_changes_a_result(cut: Cut, lib: ctypes.CDLL) -> None:
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
        assert gemm(lib, a, b, bias, cut).tobytes() == gemm(lib, a, b, bias).tobytes(), (rows, columns, depth)


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


class Arguments(ctypes.Structure):
    """struct AttentionArguments of product_driver.cpp."""

    _fields_ = (
        [("shape", ctypes.c_int64 * 7)]
        + [(name, ctypes.c_int64 * 3) for name in ("q", "k", "v", "out")]
        + [("mask", ctypes.c_int64 * 4), ("kind", ctypes.c_int32), ("zero", ctypes.c_int32)]
        + [
            ("scale", ctypes.c_double),
            ("softcap", ctypes.c_double),
            ("causal", ctypes.c_int64),
            ("past", ctypes.c_int64),
        ]
    )


def attention(
    lib: ctypes.CDLL, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, *, zero: bool
) -> np.ndarray:
    """q, k, v are [B, H, rows, D] views; mask broadcasts to [B, H, S, T]. The scale is 1 / sqrt(D)."""
    (B, H, S, D), T, Dv, size = q.shape, k.shape[2], v.shape[3], q.dtype.itemsize
    out = np.full((B, S, H, Dv), 99).astype(q.dtype).transpose(0, 2, 1, 3)
    x = Arguments(scale=D**-0.5 if D else 1.0, zero=zero)
    x.shape[:] = [B, H, S, T, D, Dv, H // k.shape[1]]
    for field, array in (("q", q), ("k", k), ("v", v), ("out", out)):
        getattr(x, field)[:] = [s // size for s in array.strides[:3]]
    if mask is not None:
        full = np.broadcast_to(mask, (B, H, S, T))
        x.mask[:] = [s // full.itemsize for s in full.strides]
        x.kind = 2 if mask.dtype == bool else 1
    data = mask if mask is not None else ctypes.c_void_p(None)
    assert call(lib.attention_array, str(q.dtype).encode(), ctypes.byref(x), q, k, v, data, out) == 1
    return out


def plain_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, zero: bool) -> np.ndarray:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(0, 1, 3, 2) * (q.shape[3] ** -0.5 if q.shape[3] else 1.0)
    if mask is not None:
        hidden = -np.inf if zero else float(np.finfo(np.float32).min)
        scores = np.where(mask, scores, hidden) if mask.dtype == bool else scores + mask.astype(np.float64)
    if scores.shape[3] == 0:
        return np.zeros((*q.shape[:3], v.shape[3]))
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
    if zero:
        weights = np.where(np.isneginf(scores).all(-1, keepdims=True), 0, weights)
    return weights @ v


def heads(B: int, H: int, rows: int, D: int, dtype: Any) -> np.ndarray:
    """[B, H, rows, D] as a projection leaves it in memory: [B, rows, H, D]."""
    return RNG.standard_normal((B, rows, H, D)).astype(dtype).transpose(0, 2, 1, 3)


ATTENTIONS = [(1, 1, 1, 1, 1, 1), (2, 3, 5, 7, 4, 4), (1, 2, 66, 64, 64, 64), (1, 2, 67, 65, 33, 17),
              (2, 2, 10, 129, 64, 80), (1, 1, 131, 40, 96, 5), (1, 1, 9, 70, 300, 16), (1, 1, 9, 70, 40, 300),
              (1, 2, 3, 0, 8, 8), (1, 2, 0, 5, 8, 8), (1, 1, 4, 5, 0, 3)]  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", ATTENTIONS, ids=str)
@pytest.mark.parametrize("kind", ["none", "additive", "padding", "boolean"])
def test_attention(dtype: str, size: tuple[int, ...], kind: str, lib: ctypes.CDLL) -> None:
    B, H, S, T, D, Dv = size
    q, k, v = heads(B, H, S, D, TYPES[dtype]), heads(B, H, T, D, TYPES[dtype]), heads(B, H, T, Dv, TYPES[dtype])
    mask = {
        "none": None,
        "additive": RNG.standard_normal((B, H, S, T)).astype(q.dtype),
        "padding": np.where(np.arange(T) < max(1, T - 3), 0, -np.inf).astype(q.dtype).reshape(1, 1, 1, T),
        "boolean": (RNG.random((1, H, S, T)) < 0.7) | (np.arange(T) == 0),
    }[kind]
    out = attention(lib, q, k, v, mask, zero=False).astype(np.float64)
    tolerance = max(EPSILON[dtype], 2.0**-24 if dtype != "float64" else 0) * (16 if dtype.startswith("float") else 4)
    np.testing.assert_allclose(out, plain_attention(q, k, v, mask, False), tolerance, tolerance)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("boolean", [False, True])
def test_fully_masked_rows(zero: bool, boolean: bool, lib: ctypes.CDLL) -> None:
    q, k, v = (heads(1, 2, 140, 16, np.float32) for _ in range(3))
    keep = np.ones((1, 1, 140, 140), bool)
    keep[..., 3, :] = False
    keep[..., 5, :130] = False
    mask = keep if boolean else np.where(keep, 0, -np.inf).astype(np.float32)
    out = attention(lib, q, k, v, mask, zero=zero)
    np.testing.assert_allclose(out, plain_attention(q, k, v, mask, zero), 2e-6, 2e-6)
    if zero:
        assert (out[:, :, 3] == 0).all()
    elif boolean:
        np.testing.assert_allclose(out[:, :, 3], v.mean(2), 1e-5, 1e-5)
    else:
        assert np.isnan(out[:, :, 3]).all()


def test_lowest_float_masks_like_plain_softmax(lib: ctypes.CDLL) -> None:
    q, k, v = (heads(1, 1, 100, 8, np.float32) for _ in range(3))
    mask = np.zeros((1, 1, 100, 100), np.float32)
    mask[..., 7, :] = np.finfo(np.float32).min
    mask[..., 8, :70] = np.finfo(np.float32).min
    scores = ((q @ k.transpose(0, 1, 3, 2)) * np.float32(8**-0.5) + mask).astype(np.float64)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(attention(lib, q, k, v, mask, zero=False), expected, 2e-6, 2e-6)


def test_nan_reaches_its_row_only(lib: ctypes.CDLL) -> None:
    q, k, v = (heads(1, 1, 70, 8, np.float32) for _ in range(3))
    q[0, 0, 11, 2] = np.nan
    out = attention(lib, q, k, v, None, zero=True)
    assert np.isnan(out[0, 0, 11]).all()
    assert np.isfinite(np.delete(out[0, 0], 11, 0)).all()


def test_grouped_heads_and_threads(driver: ctypes.CDLL) -> None:
    q, k, v = heads(2, 6, 90, 24, np.float32), heads(2, 2, 90, 24, np.float32), heads(2, 2, 90, 24, np.float32)
    out = attention(driver, q, k, v, None, zero=False)
    np.testing.assert_allclose(out, plain_attention(q, k, v, None, False), 2e-6, 2e-6)
    driver.set_threads(4)
    assert attention(driver, q, k, v, None, zero=False).tobytes() == out.tobytes()
    driver.set_threads(1)
