"""attention.h against numpy in float64: many queries and few, masks, groups, caps, hidden blocks, any number of threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.cpp.remote import Pointer, argument

pytestmark = pytest.mark.build
RNG = np.random.default_rng(4)
TYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
EPSILON = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.fixture(scope="module")
def driver(load_driver: Callable[[str], ctypes.CDLL]) -> ctypes.CDLL:
    lib = load_driver("attention_driver")
    lib.load_one_vector.restype = ctypes.c_int64
    return lib


class Arguments(ctypes.Structure):
    """struct AttentionArguments of attention_driver.cpp."""

    _fields_ = (
        [("shape", ctypes.c_int64 * 7)]
        + [(name, ctypes.c_int64 * 3) for name in ("q", "k", "v", "out")]
        + [("mask", ctypes.c_int64 * 4)]
        + [(name, ctypes.c_int32) for name in ("kind", "empty_zero", "nan_zero")]
        + [(name, ctypes.c_double) for name in ("scale", "softcap", "hidden")]
        + [(name, ctypes.c_int64) for name in ("causal", "past", "first")]
        + [(name, ctypes.c_int64 * 3) for name in ("k_first", "v_first")]
    )


LOWEST = float(np.finfo(np.float32).min)


def attention(
    lib: ctypes.CDLL,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    *,
    zero: bool = False,
    past: int | None = None,
    softcap: float = 0.0,
    hidden: float | None = None,
    first: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """q, k, v are [B, H, rows, D] views; mask broadcasts to [B, H, S, T]. The scale is 1 / sqrt(D); `past` is for causal.

    `first` are the first rows of k and v elsewhere.
    """
    (B, H, S, D), T, Dv, size = q.shape, k.shape[2], v.shape[3], q.dtype.itemsize
    out = np.full((B, S, H, Dv), 99).astype(q.dtype).transpose(0, 2, 1, 3)
    x = Arguments(
        scale=D**-0.5 if D else 1.0, empty_zero=zero, softcap=softcap, causal=past is not None, past=past or 0
    )
    x.hidden = hidden if hidden is not None else -np.inf if zero else LOWEST
    x.shape[:] = [B, H, S, T, D, Dv, H // k.shape[1]]
    elsewhere = first or (k[:, :, :0], v[:, :, :0])
    x.first = elsewhere[0].shape[2]
    pairs = zip(("k_first", "v_first"), elsewhere, strict=True)
    for field, array in (("q", q), ("k", k), ("v", v), ("out", out), *pairs):
        getattr(x, field)[:] = [s // size for s in array.strides[:3]]
    if mask is not None:
        full = np.broadcast_to(mask, (B, H, S, T))
        x.mask[:] = [s // full.itemsize for s in full.strides]
        x.kind = 2 if mask.dtype == bool else 1
    data = mask if mask is not None else ctypes.c_void_p(None)
    operands = map(argument, (q, k, v, data, *elsewhere, out))
    assert lib.attention_array(str(q.dtype).encode(), ctypes.byref(x), *operands) == 1
    return out


def plain_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    zero: bool = False,
    past: int | None = None,
    softcap: float = 0.0,
    hidden: float | None = None,
) -> np.ndarray:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(0, 1, 3, 2) * (q.shape[3] ** -0.5 if q.shape[3] else 1.0)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if mask is not None:
        hidden = hidden if hidden is not None else -np.inf if zero else LOWEST
        scores = np.where(mask, scores, hidden) if mask.dtype == bool else scores + mask.astype(np.float64)
    if past is not None:
        scores = np.where(np.tri(*scores.shape[2:], past, dtype=bool), scores, -np.inf)
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


GROUPED = [(1, 4, 1, 1, 65, 64), (2, 4, 2, 1, 200, 65), (1, 4, 4, 2, 513, 8), (1, 8, 8, 1, 63, 128), (2, 6, 3, 1, 1100, 32),
           (1, 7, 7, 1, 70, 40), (1, 5, 5, 1, 64, 1), (2, 6, 2, 3, 130, 24), (1, 2, 1, 8, 600, 300), (3, 4, 2, 17, 67, 16),
           (1, 4, 4, 67, 65, 33), (1, 2, 2, 4, 1, 256)]  # fmt: skip


def grouped(B: int, H: int, group: int, S: int, T: int, D: int, dtype: Any = np.float32) -> list[np.ndarray]:
    return [heads(B, H, S, D, dtype), heads(B, H // group, T, D, dtype), heads(B, H // group, T, D, dtype)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", GROUPED, ids=str)
@pytest.mark.parametrize("kind", ["none", "causal", "additive", "boolean", "softcap"])
def test_grouped_heads(dtype: str, size: tuple[int, ...], kind: str, driver: ctypes.CDLL) -> None:
    """Results are right, and the same for any number of threads."""
    B, H, _, S, T, _ = size
    q, k, v = grouped(*size, TYPES[dtype])
    mask = {
        "additive": RNG.standard_normal((1, H, S, T)).astype(q.dtype),
        "boolean": RNG.random((B, 1, S, T)) < 0.5,
    }.get(kind)
    options: dict[str, Any] = {"causal": {"past": T - S}, "softcap": {"softcap": 0.7}}.get(kind, {})
    if kind == "causal" and T < S:
        options = {"past": 0}
    out = attention(driver, q, k, v, mask, **options)
    tolerance = max(EPSILON[dtype], 2.0**-24 if dtype != "float64" else 0) * (16 if dtype.startswith("float") else 4)
    np.testing.assert_allclose(out.astype(np.float64), plain_attention(q, k, v, mask, **options), tolerance, tolerance)
    for threads in (2, 3, 7):
        driver.set_threads(threads)
        again = attention(driver, q, k, v, mask, **options)
        driver.set_threads(1)
        assert again.tobytes() == out.tobytes()


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 511, 512, 513, 600])
@pytest.mark.parametrize("size", [(2, 2, 1, 1, 16), (1, 4, 2, 3, 37), (2, 2, 1, 8, 300)], ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_few_queries_read_the_past_where_it_is(
    dtype: str, size: tuple[int, ...], rows: int, driver: ctypes.CDLL
) -> None:
    B, H, group, S, D = size
    q, k, v = grouped(B, H, group, S, rows + S, D, TYPES[dtype])
    mask = RNG.random((B, 1, S, rows + S)) < 0.7
    right = plain_attention(q, k, v, mask)
    first = k[:, :, :rows].copy(), np.pad(v[:, :, :rows], [(0, 0), (0, 0), (0, 5), (0, 0)])[:, :, :rows]
    k[:, :, :rows] = v[:, :, :rows] = np.nan
    out = attention(driver, q, k, v, mask, first=first)
    tolerance = max(EPSILON[dtype], 2.0**-24 if dtype != "float64" else 0) * 16
    np.testing.assert_allclose(out.astype(np.float64), right, tolerance, tolerance)
    for threads in (2, 3, 7):
        driver.set_threads(threads)
        again = attention(driver, q, k, v, mask, first=first)
        driver.set_threads(1)
        assert again.tobytes() == out.tobytes()


@pytest.mark.parametrize("S", [1, 8, 70])
def test_a_batch_does_not_change_its_members(S: int, driver: ctypes.CDLL) -> None:
    q, k, v = grouped(40, 2, 1, S, 1100, 16)
    whole = attention(driver, q, k, v)
    assert attention(driver, q[3:4], k[3:4], v[3:4]).tobytes() == whole[3:4].tobytes()


HIDING = {  # name -> mask [1, 1, S, T] for S queries around the middle of T keys
    "right_padding": lambda S, T: np.broadcast_to(np.arange(T) < T // 3 + 1, (1, 1, 1, T)),
    "left_padding": lambda S, T: np.broadcast_to(np.arange(T) >= 2 * T // 3, (1, 1, 1, T)),
    "causal": lambda S, T: (np.arange(T) <= np.arange(T // 2, T // 2 + S)[:, None])[None, None],
    "window": lambda S, T: (np.abs(np.arange(T) - np.arange(T // 2, T // 2 + S)[:, None]) < 20)[None, None],
    "one_key": lambda S, T: (np.arange(T) == T // 2).reshape(1, 1, 1, T) | np.zeros((1, 1, S, 1), bool),
}


@pytest.mark.parametrize("size", [(2, 2, 1, 1, 700, 16), (2, 4, 2, 3, 1500, 16), (2, 2, 1, 140, 640, 16)], ids=str)
@pytest.mark.parametrize("kind", HIDING)
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("copied", [False, True])
def test_hidden_blocks_are_not_read(
    size: tuple[int, ...], kind: str, zero: bool, copied: bool, driver: ctypes.CDLL
) -> None:
    """Blocks of 64 keys that no query sees may hold anything, and change no bit."""
    _, _, _, S, T, _ = size
    q, k, v = grouped(*size)
    mask = HIDING[kind](S, T)
    mask = np.ascontiguousarray(np.broadcast_to(mask, (2, 1, *mask.shape[2:]))) if copied else mask
    out = attention(driver, q, k, v, mask, zero=zero)
    np.testing.assert_allclose(out, plain_attention(q, k, v, mask, zero), 4e-6, 4e-6)
    used = np.zeros(-(-T // 64) * 64, bool)
    used[:T] = mask.any((0, 1, 2))
    for block in range(0, T, 64):
        if not used[block : block + 64].any():
            k[:, :, block : block + 64] = np.nan
            v[:, :, block : block + 64] = np.inf
    assert not np.isfinite(k).all()
    poisoned = attention(driver, q, k, v, mask, zero=zero)
    assert poisoned.tobytes() == out.tobytes()


@pytest.mark.parametrize("S", [1, 3, 70])
@pytest.mark.parametrize("zero", [False, True])
def test_a_query_that_sees_nothing_takes_the_mean_of_all_values(S: int, zero: bool, lib: ctypes.CDLL) -> None:
    q, k, v = grouped(2, 2, 1, S, 1200, 16)
    mask = np.zeros((2, 1, S, 1200), bool)
    mask[0, 0, :, 700:720] = True
    mask[0, 0, S // 2] = False
    out = attention(lib, q, k, v, mask, zero=zero)
    np.testing.assert_allclose(out, plain_attention(q, k, v, mask, zero), 4e-6, 4e-6)
    for batch, row in ((0, S // 2), (1, 0)):
        mean = v[batch].mean(1)
        np.testing.assert_allclose(out[batch, :, row], 0 * mean if zero else mean, 1e-5, 1e-5)


def test_causal_and_mask_hide_together(driver: ctypes.CDLL) -> None:
    """A query whose mask shows only keys that come after it sees nothing: the mean of the keys before it."""
    for S in (5, 140):
        q, k, v = grouped(1, 2, 1, S, S + 300, 8)
        mask = np.zeros((1, 1, S, S + 300), bool)
        mask[..., 299] = True
        mask[0, 0, 0] = np.arange(S + 300) > 301
        out = attention(driver, q, k, v, mask, past=300)
        np.testing.assert_allclose(out, plain_attention(q, k, v, mask, past=300), 4e-6, 4e-6)
        np.testing.assert_allclose(out[0, :, 0], v[0, :, :301].mean(1), 1e-5, 1e-5)


def test_masks_of_any_stride(driver: ctypes.CDLL) -> None:
    for S in (2, 70):
        q, k, v = grouped(2, 4, 2, S, 200, 8)
        wide = RNG.random((2, 1, S, 400)) < 0.1
        wide[..., :256] = False
        wide[..., 300] = True
        for mask in (
            wide[..., ::2],
            np.ascontiguousarray(wide[..., :200].swapaxes(2, 3)).swapaxes(2, 3),
            wide[..., 300:301],
        ):
            out = attention(driver, q, k, v, mask)
            np.testing.assert_allclose(out, plain_attention(q, k, v, mask), 4e-6, 4e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_vectors_are_converted_exactly(dtype: str, driver: ctypes.CDLL) -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    count = driver.load_one_vector(dtype.encode(), Pointer(bits[:64].copy()), Pointer(np.empty(64, np.float32)))
    out = np.empty(count, np.float32)
    # Every 17th vector: all exponents and signs, subnormals, infinities and NaN among them.
    for start in range(0, 2**16, 17 * count):
        chunk = bits[start : start + count].copy()
        if chunk.size == count:
            driver.load_one_vector(dtype.encode(), Pointer(chunk), Pointer(out))
            np.testing.assert_array_equal(out, chunk.view(TYPES[dtype]).astype(np.float32))


@pytest.mark.parametrize("S", [2, 70])
def test_hidden_keys_that_weigh_something_are_read(S: int, driver: ctypes.CDLL) -> None:
    """A mild score of hidden keys, and visible scores below the lowest number: what is hidden counts then."""
    q, k, v = grouped(1, 2, 1, S, 700, 16)
    mask = np.broadcast_to(np.arange(700) < 5, (1, 1, 1, 700))
    out = attention(driver, q, k, v, mask, hidden=-4.0)
    np.testing.assert_allclose(out, plain_attention(q, k, v, mask, hidden=-4.0), 4e-6, 4e-6)
    q[0, 0, 1], k[0, 0, :5] = 1e30, -1e30
    out = attention(driver, q, k, v, mask)
    np.testing.assert_allclose(out[0, 0, 1], v[0, 0, 5:].mean(0), 1e-5, 1e-5)
    np.testing.assert_allclose(out[0, 1], plain_attention(q, k, v, mask)[0, 1], 4e-6, 4e-6)
