"""Moves, reductions, row normalisations and gathers of templates/cpu against numpy, around the kernels' block sizes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.cpp.remote import call

pytestmark = pytest.mark.build
RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def driver(load_driver: Callable[[str], ctypes.CDLL]) -> ctypes.CDLL:
    lib = load_driver("tensor_driver")
    for name in ("gather_int64", "gather_int32", "gather_elements_int64", "gather_nd_int64"):
        getattr(lib, name).restype = ctypes.c_char_p
    return lib


def int64s(values: Any) -> np.ndarray:
    return np.array([*values, 0], np.int64)


def copy(lib: ctypes.CDLL, source: np.ndarray, out: np.ndarray | None = None, streamed: bool = False) -> np.ndarray:
    """copy_nd of any numpy view into a dense array, or into `out`."""
    out = np.full(source.shape, 77).astype(source.dtype) if out is None else out
    size = source.dtype.itemsize
    strides = [int64s(s // size for s in a.strides) for a in (source, out)]
    shape = (ctypes.c_int(size), source.ndim, int64s(source.shape))
    call(lib.copy, *shape, source, strides[0], out, strides[1], ctypes.c_int(streamed))
    return out


def iota(*shape: int, dtype: Any = np.int32) -> np.ndarray:
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


VIEWS: dict[str, Callable[[Any], np.ndarray]] = {
    "scalar": lambda t: np.array(5, t),
    "ones": lambda t: iota(1, 1, 1, dtype=t),
    "empty": lambda t: iota(3, 0, 5, dtype=t),
    "dense": lambda t: iota(7, 11, 13, dtype=t),
    "dense, large": lambda t: iota(50001, dtype=t),
    "row slice": lambda t: iota(40, 50, dtype=t)[3:17:2, 5:44],
    "reversed": lambda t: iota(6, 7, 8, dtype=t)[::-1, :, ::-3],
    "expanded inner": lambda t: np.broadcast_to(iota(5, 1, dtype=t), (5, 33)),
    "expanded outer": lambda t: np.broadcast_to(iota(1, 900, dtype=t), (61, 900)),
    "transposed": lambda t: iota(37, 53, dtype=t).T,
    "transposed, large": lambda t: iota(301, 257, dtype=t).T,
    "small last axis": lambda t: iota(3, 500, dtype=t).T,
    "batch transposed": lambda t: iota(3, 17, 65, dtype=t).transpose(0, 2, 1),
    "heads": lambda t: iota(2, 19, 4, 64, dtype=t).transpose(0, 2, 1, 3),
    "heads, keys": lambda t: iota(2, 70, 4, 33, dtype=t).transpose(0, 2, 3, 1),
    "reversed axes": lambda t: iota(3, 4, 5, 6, 7, dtype=t).transpose(4, 3, 2, 1, 0),
    "rank 8": lambda t: iota(2, 3, 2, 3, 2, 3, 2, 3, dtype=t).transpose(7, 2, 5, 0, 3, 6, 1, 4),
}


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float64"])
@pytest.mark.parametrize("view", VIEWS)
def test_copy(view: str, dtype: str, lib: ctypes.CDLL) -> None:
    source = VIEWS[view](dtype)
    np.testing.assert_array_equal(copy(lib, source), source)


def test_copy_into_a_strided_part(lib: ctypes.CDLL) -> None:
    source, out = iota(9, 10), np.zeros((20, 30), np.int32)
    part = out[2:20:2, 25:5:-2]
    np.testing.assert_array_equal(copy(lib, source, part), source)
    assert (out != 0).sum() == 89


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float64"])
@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize("shape", [(1, 262143), (1, 262144), (9, 31337), (301, 1021), (40000, 8), (3, 5)], ids=str)
def test_copy_around_the_caches(shape: tuple[int, int], start: int, dtype: str, lib: ctypes.CDLL) -> None:
    """Rows that begin anywhere in a line, with something between them that has to stay."""
    rows, columns = shape
    source = RNG.integers(1, 250, shape).astype(dtype)
    out = np.zeros((rows, columns + start + 2), dtype)
    part = out[:, start : start + columns]
    np.testing.assert_array_equal(copy(lib, source, part, streamed=True), source)
    assert not out[:, :start].any()
    assert not out[:, start + columns :].any()


def test_fill_and_arange(lib: ctypes.CDLL) -> None:
    for count in (0, 1, 17, 40001):
        out = np.zeros(count, np.uint8)
        call(lib.fill_bytes, count, ctypes.c_uint8(9), out)
        assert (out == 9).all()
        steps = np.empty(count, np.float32)
        call(lib.arange_float, count, ctypes.c_float(1.5), ctypes.c_float(-0.25), steps)
        np.testing.assert_array_equal(steps, 1.5 - 0.25 * np.arange(count))
        wrapped = np.empty(count, np.int16)
        call(lib.arange_int16, count, ctypes.c_int16(-5), ctypes.c_int16(3), wrapped)
        np.testing.assert_array_equal(wrapped, (-5 + 3 * np.arange(count)).astype(np.int16))


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize(
    "shape,pads",
    [
        ((5,), [(2, 3)]),
        ((4, 6), [(3, 0), (5, 2)]),
        ((2, 3, 40), [(1, 1), (0, 2), (39, 17)]),
        ((1, 1), [(2, 2), (0, 3)]),
    ],
)
def test_pad(mode: str, shape: tuple[int, ...], pads: list[tuple[int, int]], lib: ctypes.CDLL) -> None:
    x = iota(*shape)
    expected = np.pad(x, pads, mode=mode)
    out = np.empty(expected.shape, np.int32)
    number = {"edge": 0, "reflect": 1, "wrap": 2}[mode]
    before = int64s(b for b, _ in pads)
    call(lib.pad, x.ndim, int64s(shape), before, int64s(out.shape), ctypes.c_int(number), x, out)
    np.testing.assert_array_equal(out, expected)


def test_pad_crops_and_takes_nothing(lib: ctypes.CDLL) -> None:
    x, out = iota(6, 6), np.empty((4, 9), np.int32)
    call(lib.pad, 2, int64s([6, 6]), int64s([-1, 3]), int64s([4, 9]), ctypes.c_int(0), x, out)
    np.testing.assert_array_equal(out, np.pad(x, [(0, 0), (3, 0)], mode="edge")[1:5])
    call(lib.pad, 2, int64s([0, 6]), int64s([1, 0]), int64s([4, 9]), ctypes.c_int(1), x, out)
    assert (out == 0).all()


GEOMETRIES = [
    (1, 1, 1),
    (3, 5, 1),
    (2, 33, 1),
    (5, 1024, 1),
    (2, 1025, 1),
    (1, 100003, 1),
    (3, 7, 5),
    (2, 300, 64),
    (1, 513, 65),
    (4, 3, 1000),
]
REDUCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sum": lambda x: x.sum(1), "mean": lambda x: x.mean(1), "prod": lambda x: x.prod(1), "max": lambda x: x.max(1),
    "min": lambda x: x.min(1), "l1": lambda x: np.abs(x).sum(1), "l2": lambda x: np.sqrt((x * x).sum(1)),
    "sum_square": lambda x: (x * x).sum(1), "log_sum": lambda x: np.log(x.sum(1)),
    "log_sum_exp": lambda x: np.log(np.exp(x - x.max(1, keepdims=True)).sum(1)) + x.max(1),
}  # fmt: skip


def reduce(lib: ctypes.CDLL, op: str, x: np.ndarray) -> np.ndarray:
    out = np.empty((x.shape[0], x.shape[2]), x.dtype)
    assert call(lib.reduce_array, op.encode(), str(x.dtype).encode(), *x.shape, x, out) == 1
    return out


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("shape", GEOMETRIES)
def test_reduce_float(op: str, shape: tuple[int, int, int], lib: ctypes.CDLL) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    if op == "log_sum":
        x = np.abs(x)
    if op == "prod":
        x = 1 + x * 1e-3
    expected = REDUCTIONS[op](x.astype(np.float64))
    # Relative to the sum of magnitudes: a pairwise sum loses a few ulp of it.
    scale = np.abs(x.astype(np.float64)).sum(1) / (shape[1] if op == "mean" else 1)
    atol = 6e-7 * scale if op in {"sum", "mean"} else 1e-6 * np.abs(expected) + 1e-7
    # Each factor of a product rounds once, in whatever order.
    tolerance = 6e-8 * (shape[1] + 2) * np.abs(expected) if op == "prod" else atol
    assert (np.abs(reduce(lib, op, x) - expected) <= tolerance).all()


@pytest.mark.parametrize(
    ("op", "dtype"),
    [("sum", "int32"), ("max", "int32"), ("prod", "uint8"), ("min", "uint8"), ("any", "bool"), ("all", "bool")],
)
@pytest.mark.parametrize("shape", GEOMETRIES)
def test_reduce_exactly(op: str, dtype: str, shape: tuple[int, int, int], lib: ctypes.CDLL) -> None:
    x = RNG.integers(-(2**31), 2**31, shape).astype(dtype)
    if op == "any":
        x &= RNG.random(shape) < 2 / shape[1]
    expected = getattr(x, op)(1) if op not in {"sum", "prod"} else getattr(x, op)(1, dtype=dtype)
    np.testing.assert_array_equal(reduce(lib, op, x), expected)


def test_reduce_of_integers_truncates(lib: ctypes.CDLL) -> None:
    x = np.array([-7, 2, 1, -3], np.int32).reshape(1, 4, 1)
    assert reduce(lib, "mean", x).item() == -1
    assert reduce(lib, "l2", x).item() == 7


def test_reduce_half(lib: ctypes.CDLL) -> None:
    x = RNG.standard_normal((3, 3000, 1)).astype(np.float16)
    np.testing.assert_array_equal(reduce(lib, "sum", x), x.astype(np.float64).sum(1).astype(np.float16))
    np.testing.assert_array_equal(reduce(lib, "max", x), x.max(1))


@pytest.mark.parametrize("inner", [1, 3])
def test_reduce_nothing_gives_the_identity(inner: int, lib: ctypes.CDLL) -> None:
    x = np.empty((2, 0, inner), np.float32)
    identity = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf, "mean": 0, "l2": 0, "log_sum_exp": -np.inf}
    for op, value in identity.items():
        np.testing.assert_array_equal(reduce(lib, op, x), np.full((2, inner), value, np.float32))
    lowest = np.full((2, inner), -(2**31))
    np.testing.assert_array_equal(reduce(lib, "max", x.astype(np.int32)), lowest)
    assert reduce(lib, "all", x.astype(bool)).all()
    assert not reduce(lib, "any", x.astype(bool)).any()


@pytest.mark.parametrize("inner", [1, 4])
@pytest.mark.parametrize("n", [1, 40, 3000])
def test_reduce_special_values(n: int, inner: int, lib: ctypes.CDLL) -> None:
    x = RNG.standard_normal((2, n, inner)).astype(np.float32)
    x[0, n // 2] = np.nan
    for op in ("max", "min", "sum", "log_sum_exp"):
        assert np.isnan(reduce(lib, op, x)[0]).all(), op
        assert np.isfinite(reduce(lib, op, x)[1]).all(), op
    x[0], x[1, 0] = -np.inf, np.inf
    np.testing.assert_array_equal(reduce(lib, "log_sum_exp", x), [[-np.inf] * inner, [np.inf] * inner])


@pytest.mark.parametrize("shape", GEOMETRIES)
@pytest.mark.parametrize("last", [False, True])
def test_arg_reduce(shape: tuple[int, int, int], last: bool, lib: ctypes.CDLL) -> None:
    x = RNG.integers(0, 5, shape).astype(np.float32)
    for largest in (False, True):
        out = np.empty((shape[0], shape[2]), np.int64)
        call(lib.arg_float, ctypes.c_int(largest), *shape, ctypes.c_int(last), x, out)
        signed = x if largest else -x
        expected = shape[1] - 1 - signed[:, ::-1].argmax(1) if last else signed.argmax(1)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("shape", GEOMETRIES)
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumsum(shape: tuple[int, int, int], exclusive: bool, reverse: bool, lib: ctypes.CDLL) -> None:
    x = RNG.integers(-9, 9, shape).astype(np.int32)
    turned = x[:, ::-1] if reverse else x
    total = turned.cumsum(1, dtype=np.int32) - (turned if exclusive else 0)
    expected = total[:, ::-1] if reverse else total
    for dtype, function in ((np.int32, lib.cumsum_int32), (np.float32, lib.cumsum_float)):
        values = np.ascontiguousarray(x, dtype)
        out = np.empty_like(values)
        call(function, *shape, ctypes.c_int(exclusive), ctypes.c_int(reverse), values, out)
        np.testing.assert_array_equal(out, expected)


TOLERANCE = {"float32": 1e-6, "float64": 1e-14, "float16": 1e-3, "bfloat16": 8e-3}


def numpy_type(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (3, 5, 1), (2, 1031, 1), (3, 0, 1), (70, 128, 1), (2, 9, 3), (1, 300, 70)]
)
def test_softmax(dtype: str, shape: tuple[int, int, int], lib: ctypes.CDLL) -> None:
    x = (RNG.standard_normal(shape) * 5).astype(numpy_type(dtype))
    wide = x.astype(np.float64)
    centred = wide - wide.max(1, keepdims=True, initial=-np.inf)
    total = np.exp(centred).sum(1, keepdims=True, initial=1e-300)
    for logarithm, expected in ((0, np.exp(centred) / total), (1, centred - np.log(total))):
        out = np.empty_like(x)
        call(lib.softmax_array, dtype.encode(), ctypes.c_int(logarithm), *shape, x, out)
        np.testing.assert_allclose(out.astype(np.float64), expected, TOLERANCE[dtype] * 2, TOLERANCE[dtype])


def test_softmax_of_infinities(lib: ctypes.CDLL) -> None:
    x = np.array([[-np.inf, 0, 0, -3.4e38], [-np.inf] * 4, [np.nan, 1, 2, 3]], np.float32)
    for rows in (x.reshape(3, 4, 1), np.ascontiguousarray(x.T).reshape(1, 4, 3)):
        out = np.empty_like(rows)
        call(lib.softmax_array, b"float32", ctypes.c_int(0), *rows.shape, rows, out)
        result = out.reshape(3, 4) if rows.shape[0] == 3 else out.reshape(4, 3).T
        np.testing.assert_array_equal(result, [[0, 0.5, 0.5, 0], [np.nan] * 4, [np.nan] * 4])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (3, 768), (2, 5000), (0, 4)])
@pytest.mark.parametrize("affine", ["none", "gamma", "beta", "both"])
def test_layernorm(dtype: str, shape: tuple[int, int], affine: str, lib: ctypes.CDLL) -> None:
    kind = numpy_type(dtype)
    x = (RNG.standard_normal(shape) + 3).astype(kind)
    gamma, beta = (RNG.standard_normal(shape[1]).astype(kind) for _ in range(2))
    wide = x.astype(np.float64)
    mean = wide.mean(1, keepdims=True)
    inv_std = 1 / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    expected = (wide - mean) * inv_std
    expected = expected * gamma.astype(np.float64) if affine in {"gamma", "both"} else expected
    expected = expected + beta.astype(np.float64) if affine in {"beta", "both"} else expected
    out = np.empty_like(x)
    statistics = [np.empty(shape[0], np.float64 if dtype == "float64" else np.float32) for _ in range(2)]
    null = ctypes.c_void_p(None)
    parameters = gamma if affine in {"gamma", "both"} else null, beta if affine in {"beta", "both"} else null
    call(lib.layernorm_array, dtype.encode(), *shape, x, *parameters, ctypes.c_double(1e-5), out, *statistics)
    np.testing.assert_allclose(out.astype(np.float64), expected, TOLERANCE[dtype] * 2, TOLERANCE[dtype] * 4)
    np.testing.assert_allclose(statistics[0], mean[:, 0], 1e-6)
    np.testing.assert_allclose(statistics[1], inv_std[:, 0], 1e-6)


@pytest.mark.parametrize("scaled", [False, True])
def test_rms_norm(scaled: bool, lib: ctypes.CDLL) -> None:
    x, gamma = RNG.standard_normal((5, 771)).astype(np.float32), RNG.standard_normal(771).astype(np.float32)
    out, inverse = np.empty_like(x), np.empty(5, np.float32)
    parameter = gamma if scaled else ctypes.c_void_p(None)
    call(lib.rms_norm_float, 5, 771, x, parameter, ctypes.c_float(1e-6), out, inverse)
    expected = 1 / np.sqrt((x.astype(np.float64) ** 2).mean(1) + 1e-6)
    np.testing.assert_allclose(inverse, expected, 1e-6)
    np.testing.assert_allclose(out, x * expected[:, None] * (gamma if scaled else 1), 1e-6, 1e-6)


@pytest.mark.parametrize(
    "shape,count", [((1, 5, 1), 3), ((2, 7, 33), 11), ((1, 1000, 64), 300), ((3, 4, 0), 2), ((3, 4, 2), 0)]
)
def test_gather(shape: tuple[int, int, int], count: int, lib: ctypes.CDLL) -> None:
    data = iota(*shape)
    indices = RNG.integers(-shape[1], shape[1], count)
    out = np.empty((shape[0], count, shape[2]), np.int32)
    assert call(lib.gather_int64, *shape, count, data, indices, out) is None
    np.testing.assert_array_equal(out, data[:, indices])
    short = np.empty(out.shape, np.int16)
    assert call(lib.gather_int32, *shape, count, data.astype(np.int16), indices.astype(np.int32), short) is None


@pytest.mark.parametrize("bad", [5, -6, 2**62, -(2**63)])
def test_gather_refuses_what_is_out_of_range(bad: int, lib: ctypes.CDLL) -> None:
    data, out = iota(1, 5, 2), np.zeros((1, 2, 2), np.int32)
    assert call(lib.gather_int64, 1, 5, 2, 2, data, np.array([1, bad]), out) == b"index out of range"
    extents = int64s([1, 5, 2]), int64s([1, 2, 1])
    assert call(lib.gather_elements_int64, 3, 1, *extents, data, np.array([1, bad]), out) == b"index out of range"
    assert call(lib.gather_nd_int64, 1, 2, 1, int64s([5]), 2, data, np.array([1, bad]), out) == b"index out of range"
    assert call(lib.gather_int64, 1, 0, 2, 1, data, np.array([0]), out) == b"index out of range"


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_elements(axis: int, lib: ctypes.CDLL) -> None:
    data = iota(4, 5, 6)
    shape = [3, 4, 5]
    shape[axis] = 9
    indices = RNG.integers(-data.shape[axis], data.shape[axis], shape)
    out = np.empty(shape, np.int32)
    assert call(lib.gather_elements_int64, 3, axis, int64s(data.shape), int64s(shape), data, indices, out) is None
    part = tuple(slice(None) if i == axis else slice(0, shape[i]) for i in range(3))
    np.testing.assert_array_equal(out, np.take_along_axis(data[part], indices % data.shape[axis], axis))


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_gather_nd(depth: int, lib: ctypes.CDLL) -> None:
    data = iota(2, 4, 5, 6)  # one batch dim
    extent = data.shape[1 : 1 + depth]
    inner = int(np.prod(data.shape[1 + depth :]))
    indices = np.stack([RNG.integers(-e, e, (2, 7)) for e in extent], -1) if depth else np.zeros((2, 7, 0), np.int64)
    out = np.empty((2, 7, inner), np.int32)
    assert call(lib.gather_nd_int64, 2, 7, depth, int64s(extent), inner, data, indices, out) is None
    expected = [[data[b][tuple(indices[b, t])].ravel() for t in range(7)] for b in range(2)]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("k", [-(2**63), -9, -1, 0, 2, 8, 2**63 - 1])
@pytest.mark.parametrize("shape", [(2, 5, 7), (1, 6, 3), (1, 1, 1)])
def test_trilu(k: int, shape: tuple[int, int, int], lib: ctypes.CDLL) -> None:
    x, out = iota(*shape) + 1, np.empty(shape, np.int32)
    near = max(-50, min(50, k))
    for upper, expected in ((1, np.triu(x, near)), (0, np.tril(x, near))):
        call(lib.trilu_32, *shape, k, ctypes.c_int(upper), x.astype(np.int32), out)
        np.testing.assert_array_equal(out, expected)
