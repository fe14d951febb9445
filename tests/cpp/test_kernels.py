"""The scalar functions and casts of templates/cpu/math/scalar.h and types.h against numpy in float64."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from ortisan.registry.scalars import SCALARS
from tests.cpp.remote import Pointer

pytestmark = pytest.mark.build

# Largest error in ulp over all floats, on any instruction set. common_NAME is NAME as loops call it: the version for common
# arguments where that takes the argument. The lower tails of the gelus are accurate absolutely.
ULP = {
    "exp": 1.2, "expm1": 1.7, "log": 1.0, "log1p": 1.5, "sqrt": 0.5, "rsqrt": 1.5,
    "sin": 1.7, "cos": 1.7, "tan": 4.0, "common_log": 1.0, "common_sin": 1.7, "common_cos": 1.7, "common_tan": 4.0,
    "asin": 2.6, "acos": 1.3, "atan": 1.6,
    "sinh": 2.6, "cosh": 1.6, "tanh": 2.4, "asinh": 2.0, "acosh": 2.4, "atanh": 2.4,
    "sigmoid": 2.5, "erf": 3.98, "softplus": 2.6, "pow": 0.51, "silu": 3.2, "mish": 4.8,
    "gelu_positive": 4.7, "gelu_negative": 21.0, "fastgelu_positive": 2.6, "fastgelu_negative": 36.0,
}  # fmt: skip

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 88.0, -104.0, 1e-40, 3.4e38, -3.4e38, math.inf, -math.inf, math.nan]


def pointer(array: np.ndarray) -> Pointer:
    return Pointer(array)


@pytest.fixture(scope="module")
def lib(load_driver: Callable[[str], ctypes.CDLL]) -> ctypes.CDLL:
    return load_driver("scalar_driver")


def values(dtype: str, count: int = 1000) -> np.ndarray:
    rng = np.random.default_rng(1)
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if "int" in dtype:
        info = np.iinfo(dtype)
        small = rng.integers(max(info.min, -9), 9, count // 2)
        large = rng.integers(info.min, info.max, count // 2, dtype=dtype, endpoint=True)
        edge = [0, 1, info.max, info.min]
        return np.concatenate([np.array(edge, dtype), small.astype(dtype), large])
    spread = rng.standard_normal(count) * 10.0 ** rng.integers(-6, 4, count)
    with np.errstate(over="ignore"):
        return np.concatenate([SPECIAL, spread]).astype(dtype)


def run_unary(lib: ctypes.CDLL, name: str, x: np.ndarray, p: float = 0.0, q: float = 0.0) -> np.ndarray:
    y = np.empty_like(x)
    function = lib.unary_float if x.dtype == np.float32 else lib.unary_double
    parameters = ctypes.c_double(p), ctypes.c_double(q)
    assert function(name.encode(), ctypes.c_int64(x.size), pointer(x), pointer(y), *parameters) == 1
    return y


def run_binary(lib: ctypes.CDLL, kind: str, name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    z = np.empty(x.shape, bool if kind == "compare" else x.dtype)
    function = getattr(lib, f"{kind}_{x.dtype}")
    assert function(name.encode(), ctypes.c_int64(x.size), pointer(x), pointer(y), pointer(z)) == 1
    return z


@pytest.mark.parametrize("march", ["native", "x86-64-v2"])
def test_every_float_function_stays_within_its_ulp(march: str, compile_driver: Callable[..., Path]) -> None:
    sweep(compile_driver, march, "4099")


@pytest.mark.slow
@pytest.mark.parametrize("march", ["native", "x86-64-v2"])
def test_ulp_on_a_dense_sweep(march: str, compile_driver: Callable[..., Path]) -> None:
    sweep(compile_driver, march, "31")


def sweep(compile_driver: Callable[..., Path], march: str, stride: str) -> None:
    binary = compile_driver("ulp_sweep", f"-march={march}")
    lines = subprocess.run([str(binary), stride], check=True, capture_output=True, text=True).stdout.splitlines()
    measured = [(name, float(ulp), at) for name, ulp, at in map(str.split, lines)]
    assert {name for name, _, _ in measured} == set(ULP)
    assert [row for row in measured if not row[1] <= ULP[row[0]]] == []


PLAIN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": np.abs, "neg": np.negative, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "relu": lambda x: np.maximum(x, 0), "reciprocal": lambda x: 1 / x, "isnan": np.isnan, "isinf": np.isinf,
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sin": lambda x: np.sin(x), "acos": np.arccos, "asinh": np.arcsinh,
    "softsign": lambda x: x / (1 + np.abs(x)), "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "erf": np.vectorize(math.erf),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(PLAIN))
def test_unary(name: str, dtype: str, lib: ctypes.CDLL) -> None:
    x = values(dtype)
    with np.errstate(all="ignore"):
        expected = PLAIN[name](x.astype(np.float64)).astype(dtype)
    rtol, atol = (4e-7, 1e-7) if dtype == "float32" else (4e-15, 1e-15)
    np.testing.assert_allclose(run_unary(lib, name, x), expected, rtol, atol * (name in {"gelu", "hardswish"}))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-np.abs(x)))


# Arguments at which a function goes over to another formula, to a constant or to infinity.
SEAMS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], tuple[float, ...]]] = {
    "exp": (np.exp, (-105, -103.97, -87.34, 0, 88.72, 90)),
    "sigmoid": (sigmoid, (-105, -103.97, -88.7, -87.34, 0, 16.6, 105)),
    "tanh": (np.tanh, (-9.1, -9.01, -0.1733, 0, 0.1733, 0.52, 9.01, 9.1)),
    "erf": (np.vectorize(math.erf), (-4, -3.92, 0, 3.92, 4)),
    "gelu": (PLAIN["gelu"], (-40, -14, -13.27, -6.5, 0, 0.98, 6.5, 13.27, 40)),
    "softplus": (softplus, (-105, -103.97, -87.34, 0, 16.6, 88.72)),
    "mish": (lambda x: x * np.tanh(softplus(x)), (-80, 0, 20, 40)),
    "sin": (np.sin, (-1e5, -math.pi / 4, 0, math.pi / 4, 22.7765, 1e5)),
    "cos": (np.cos, (-1e5, -math.pi / 4, 0, math.pi / 4, 22.7765, 1e5)),
    "tan": (np.tan, (-1e5, -math.pi / 4, 0, math.pi / 4, 22.7765, 1e5)),
    "log": (np.log, (2.0**-126, 2.0**-125, 2**-0.5, 1, 2**0.5)),
}


@pytest.mark.parametrize("name", sorted(SEAMS))
def test_both_sides_of_a_seam(name: str, lib: ctypes.CDLL) -> None:
    reference, seams = SEAMS[name]
    middle = np.array(seams, np.float32)[:, None]
    steps = np.arange(-300, 301, dtype=np.float32) * np.maximum(np.spacing(np.abs(middle)), np.float32(2.0**-149))
    x = (middle + steps).ravel()
    with np.errstate(all="ignore"):
        expected = reference(x.astype(np.float64)).astype(np.float32)
    atol = 1e-7 if name in {"gelu", "mish"} else 2.0**-148  # two of the smallest numbers
    np.testing.assert_allclose(run_unary(lib, name, x), expected, 4.8e-7, atol)


LENGTHS = (0, 1, 7, 8, 9, 31, 32, 33, 511, 512, 513, 1023, 1031)


@pytest.mark.parametrize("name", ["log", "sin", "cos", "tan"])
@pytest.mark.parametrize("length", LENGTHS)
def test_common_arguments_give_the_same_bits_beside_rare_ones(length: int, name: str, lib: ctypes.CDLL) -> None:
    x = np.random.default_rng(length).uniform(0.01, 300, length).astype(np.float32)
    rare = x.copy()
    rare[::5] = np.resize(np.array([np.nan, np.inf, -np.inf, 0, -0.0, -1, 1e30, 1e-40], np.float32), rare[::5].size)
    common, beside = run_common(lib, name, x), run_common(lib, name, rare)
    is_common = np.arange(length) % 5 != 0
    np.testing.assert_array_equal(beside[is_common], common[is_common])
    np.testing.assert_array_equal(beside, run_unary(lib, name, rare))


def run_common(lib: ctypes.CDLL, name: str, x: np.ndarray) -> np.ndarray:
    y = np.empty_like(x)
    assert lib.common_float(name.encode(), ctypes.c_int64(x.size), pointer(x), pointer(y)) == 1
    return y


WITH_PARAMETERS: dict[str, tuple[float, float, Callable[..., np.ndarray]]] = {
    "hardsigmoid": (0.2, 0.5, lambda x, p, q: np.clip(p * x + q, 0, 1)),
    "elu": (1.5, 0, lambda x, p, q: np.where(x > 0, x, p * np.expm1(x))),
    "selu": (1.6, 1.05, lambda x, p, q: q * np.where(x > 0, x, p * np.expm1(x))),
    "celu": (2.0, 0, lambda x, p, q: np.maximum(x, 0) + np.minimum(0, p * np.expm1(x / p))),
    "lrelu": (0.1, 0, lambda x, p, q: np.where(x < 0, p * x, x)),
    "leaky_relu": (0.1, 0, lambda x, p, q: np.where(x < 0, p * x, x)),
    "thresholded_relu": (0.7, 0, lambda x, p, q: np.where(x > p, x, 0)),
    "shrink": (0.7, 0.2, lambda x, p, q: np.where(x < -p, x + q, np.where(x > p, x - q, 0))),
    "clamp": (-0.5, 2.0, lambda x, p, q: np.clip(x, p, q)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(WITH_PARAMETERS))
def test_unary_with_parameters(name: str, dtype: str, lib: ctypes.CDLL) -> None:
    p, q, reference = WITH_PARAMETERS[name]
    p, q = float(np.dtype(dtype).type(p)), float(np.dtype(dtype).type(q))
    x = values(dtype)
    with np.errstate(all="ignore"):
        expected = reference(x.astype(np.float64), p, q).astype(dtype)
    rtol, atol = (5e-7, 1e-7) if dtype == "float32" else (1e-14, 1e-15)
    np.testing.assert_allclose(run_unary(lib, name, x, p, q), expected, rtol, atol)


def python_mod(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(y == 0, 0, np.mod(x, np.where(y == 0, 1, y)))


def truncated_quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Exact, by Python integers, wrapped to the dtype; 0 where y is 0."""
    info = np.iinfo(x.dtype)
    span = int(info.max) - int(info.min) + 1
    exact = [
        0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    return np.array([(v - int(info.min)) % span + int(info.min) for v in exact], x.dtype)


def wrapped_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    info = np.iinfo(x.dtype)
    span = int(info.max) - int(info.min) + 1
    exact = [pow(a, b, span) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return np.array([(v - int(info.min)) % span + int(info.min) for v in exact], x.dtype)


INTEGER: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": truncated_quotient, "mod": python_mod,
    "fmod": lambda x, y: np.where(y == 0, 0, np.fmod(x, np.where(y == 0, 1, y))),
    "max": np.maximum, "min": np.minimum, "abs": lambda x, y: np.abs(x), "neg": lambda x, y: np.negative(x),
    "sign": lambda x, y: np.sign(x), "relu": lambda x, y: np.maximum(x, 0), "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "bitwise_not": lambda x, y: np.bitwise_not(x),
}  # fmt: skip
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", sorted(INTEGER))
def test_integer_arithmetic_wraps_and_never_traps(name: str, dtype: str, lib: ctypes.CDLL) -> None:
    x = values(dtype)
    y = np.concatenate([np.roll(x, 77)[:-4], np.array([-1, 0, 1, 2]).astype(dtype)])
    x[-4] = np.iinfo(dtype).min
    with np.errstate(all="ignore"):
        expected = INTEGER[name](x, y)
    np.testing.assert_array_equal(run_binary(lib, "integer", name, x, y), expected)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_power_and_shifts(dtype: str, lib: ctypes.CDLL) -> None:
    x = values(dtype)
    y = np.arange(x.size).astype(np.int64) % 70
    np.testing.assert_array_equal(
        run_binary(lib, "integer", "pow", x, y.astype(dtype)), wrapped_power(x, y.astype(dtype))
    )
    bits = np.iinfo(dtype).bits
    inside = np.where(y < bits, y, 0).astype(dtype)
    left = np.where(y < bits, np.left_shift(x, inside), 0).astype(dtype)
    right = np.where(y < bits, np.right_shift(x, inside), 0).astype(dtype)
    np.testing.assert_array_equal(run_binary(lib, "integer", "shift_left", x, y.astype(dtype)), left)
    np.testing.assert_array_equal(run_binary(lib, "integer", "shift_right", x, y.astype(dtype)), right)


FLOATS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "fmod": np.fmod, "mod": np.mod,
    "max": np.maximum, "min": np.minimum, "pow": np.power, "prelu": lambda x, y: np.where(x < 0, x * y, x),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(FLOATS))
def test_float_arithmetic(name: str, dtype: str, lib: ctypes.CDLL) -> None:
    x, y = (a.ravel().copy() for a in np.meshgrid(values(dtype, 40), values(dtype, 60)))
    with np.errstate(all="ignore"):
        expected = FLOATS[name](x, y)
    rtol = 0 if name in {"max", "min", "add", "sub", "mul", "div", "fmod"} else 2e-7
    np.testing.assert_allclose(run_binary(lib, "arithmetic", name, x, y), expected, rtol)


@pytest.mark.parametrize("name", ["eq", "ne", "gt", "ge", "lt", "le"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_comparison(name: str, dtype: str, lib: ctypes.CDLL) -> None:
    x, y = (a.ravel().copy() for a in np.meshgrid(values(dtype, 40), values(dtype, 40)))
    operator = {"eq": np.equal, "ne": np.not_equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less}
    expected = operator.get(name, np.less_equal)(x, y)
    np.testing.assert_array_equal(run_binary(lib, "compare", name, x, y), expected)


def test_mixed_powers(lib: ctypes.CDLL) -> None:
    x, y = (a.ravel().copy() for a in np.meshgrid(values("float32", 40), np.arange(-5, 6)))
    z = np.empty_like(x)
    lib.pow_float_int64(ctypes.c_int64(x.size), pointer(x), pointer(y), pointer(z))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(z, np.power(x.astype(np.float64), y).astype(np.float32), 2e-7)
    base, exponent = np.array([4, 9, -3, 0, 2], np.int32), np.array([0.5, 1.5, 3, 0, -1], np.float32)
    result = np.empty_like(base)
    lib.pow_int32_float(ctypes.c_int64(5), pointer(base), pointer(exponent), pointer(result))
    np.testing.assert_array_equal(result, [2, 27, -27, 1, 0])


def test_logic_and_choice(lib: ctypes.CDLL) -> None:
    x, y, z = values("bool", 99), values("bool", 198)[99:].copy(), np.empty(99, bool)
    for name in ["logical_and", "logical_or", "logical_xor", "max", "min", "eq", "logical_not"]:
        assert lib.logical(name.encode(), ctypes.c_int64(99), pointer(x), pointer(y), pointer(z)) == 1
        reference = {"max": x | y, "min": x & y, "eq": x == y, "logical_not": ~x}
        np.testing.assert_array_equal(z, reference[name] if name in reference else getattr(np, name)(x, y))
    a, b, out = values("float32", 84), values("float32", 84)[::-1].copy(), np.empty(99, np.float32)
    lib.where_float(ctypes.c_int64(99), pointer(x), pointer(a), pointer(b), pointer(out))
    np.testing.assert_array_equal(out, np.where(x, a, b))


TYPES = ["float32", "float64", "float16", "bfloat16", "bool", *INTEGERS]


def cast(lib: ctypes.CDLL, x: np.ndarray, to: np.dtype) -> np.ndarray:
    y = np.empty(x.shape, to)
    assert lib.cast_array(str(x.dtype).encode(), str(to).encode(), ctypes.c_int64(x.size), pointer(x), pointer(y)) == 1
    return y


@pytest.mark.parametrize("to", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_cast(source: str, to: str, lib: ctypes.CDLL) -> None:
    target = np.dtype(to if to != "bfloat16" else ml_dtypes.bfloat16)
    if source in {"float32", "float64", "float16", "bfloat16"} and "int" in to:
        low, high = (0, 100) if to.startswith("u") else (-100, 100)
        x = np.random.default_rng(2).uniform(low, high, 333)
    elif source == "bfloat16":
        x = values("float32")
    else:
        x = values(source)
    with np.errstate(all="ignore"):
        x = x.astype(ml_dtypes.bfloat16 if source == "bfloat16" else source)
        expected = x.astype(target)
        if target == ml_dtypes.bfloat16 and source != "bfloat16":
            expected = x.astype(np.float32).astype(target)
    np.testing.assert_array_equal(cast(lib, x, target).astype(np.float64), expected.astype(np.float64))


def test_all_halves_and_bfloat16s_convert_both_ways(lib: ctypes.CDLL) -> None:
    bits = np.arange(65536, dtype=np.uint16)
    for small in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        wide = cast(lib, bits.view(small), np.dtype(np.float32))
        np.testing.assert_array_equal(wide, bits.view(small).astype(np.float32))
        np.testing.assert_array_equal(cast(lib, wide, small).astype(np.float32), wide)
        with np.errstate(all="ignore"):
            neighbours = [np.nextafter(wide, np.float32(side)) for side in (-np.inf, np.inf)]
            between = np.concatenate([*neighbours, wide[:-1] / 2 + wide[1:] / 2])
            expected = between.astype(small)
        np.testing.assert_array_equal(cast(lib, between, small).astype(np.float32), expected.astype(np.float32))


def test_floats_out_of_range_become_fixed_integers(lib: ctypes.CDLL) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1e19, -1e19], np.float32)
    lowest = [-(2**31)] * 7
    np.testing.assert_array_equal(cast(lib, x, np.dtype(np.int32)), lowest)
    wide = [-(2**63), -(2**63), -(2**63), 3 * 10**9, -3 * 10**9, -(2**63), -(2**63)]
    np.testing.assert_array_equal(cast(lib, x, np.dtype(np.int64)), wide)
    assert cast(lib, x[5:6], np.dtype(np.uint64))[0] == int(np.float32(1e19))
    assert cast(lib, np.array([300.0, -1.0], np.float32), np.dtype(np.uint8)).tolist() == [44, 255]
    assert cast(lib, np.array([np.nan], np.float32), np.dtype(bool))[0]


@pytest.mark.parametrize("name", ["gelu", "fastgelu", "silu"])
def test_a_gate_of_minus_infinity_is_nan_as_in_the_formula(name: str, lib: ctypes.CDLL) -> None:
    x = np.array([-np.inf, np.inf, np.nan, -3e38, *np.linspace(-9, 9, 40)], np.float32)
    with np.errstate(all="ignore"):
        expected = SCALARS[name.upper()].reference(x.astype(np.float64))
    assert np.isnan(expected[0])
    np.testing.assert_allclose(run_unary(lib, name, x), expected, 4e-6, 2e-7)
