"""Float instructions against numpy and exact fractions, on random and extreme operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from ortisan.emulator import Device
from tests.emulator.ptx import Array, apply, floats, same

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")]

KINDS = {"f32": "f4", "f64": "f8"}
OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
}  # fmt: skip
EXACT = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
}  # fmt: skip


def flushed(x: Array) -> Array:
    return np.where(np.abs(x) < np.finfo("f4").tiny, np.copysign(np.float32(0), x), x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_rounded_to_nearest(device: Device, kind: str, name: str) -> None:
    t = KINDS[kind]
    a, b = floats(t, seed=1), floats(t, seed=2)
    same(apply(device, f"{name}.rn.{kind} $d, $a, $b;", t, a, b), OPERATIONS[name](a, b))


def rounded(exact: Fraction, mode: str, t: str) -> float:
    """A fraction between two neighbours of a type, rounded to one of them; no overflow."""
    near = np.dtype(t).type(float(exact)) if t == "f4" else np.float64(exact)
    error = Fraction(float(near)) - exact
    toward_zero = (error > 0) == (exact > 0)
    if error == 0 or (mode == "rp" and error > 0) or (mode == "rm" and error < 0) or (mode == "rz" and not toward_zero):
        return float(near)
    low = error > 0
    return float(np.nextafter(near, np.dtype(t).type(-math.inf if low else math.inf)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_rounded_otherwise(device: Device, kind: str, mode: str, name: str) -> None:
    t = KINDS[kind]
    random = np.random.default_rng(3)
    a, b = (random.standard_normal(300).astype(t) * random.choice([1, 1000], 300).astype(t) for _ in range(2))
    got = apply(device, f"{name}.{mode}.{kind} $d, $a, $b;", t, a, b)
    want = [rounded(EXACT[name](Fraction(float(x)), Fraction(float(y))), mode, t) for x, y in zip(a, b, strict=True)]
    same(got, np.array(want, t))


def test_fused_multiply_add_rounds_once(device: Device) -> None:
    a, b = floats("f4", seed=1), floats("f4", seed=2)
    a, b = np.where(np.isfinite(a), a, 1).astype("f4"), np.where(np.isfinite(b), b, 1).astype("f4")
    a, b = np.clip(a, -1e15, 1e15), np.clip(b, -1e15, 1e15)
    c = (-a * b * np.float32(1 + 2**-20)).astype("f4")
    got = apply(device, "fma.rn.f32 $d, $a, $b, $c;", "f4", a, b, c)
    exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c, strict=True)]
    np.testing.assert_array_equal(got, np.array([np.float32(float(x)) for x in exact]))
    down = apply(device, "fma.rm.f32 $d, $a, $b, $c;", "f4", a, b, c)
    usual = np.array([abs(x) > 1e-30 or x == 0 for x in exact])
    np.testing.assert_array_equal(down[usual], np.array([rounded(x, "rm", "f4") for x in exact], "f4")[usual])


@pytest.mark.parametrize("name", OPERATIONS)
def test_subnormal_numbers_are_flushed(device: Device, name: str) -> None:
    a, b = floats(seed=1), floats(seed=2)
    want = flushed(OPERATIONS[name](flushed(a), flushed(b)))
    same(apply(device, f"{name}{'.rn' if name == 'div' else ''}.ftz.f32 $d, $a, $b;", "f4", a, b), want)
    same(apply(device, f"{name}.rn.f32 $d, $a, $b;", "f4", a, b), OPERATIONS[name](a, b))


def test_saturation(device: Device) -> None:
    a, b = floats(seed=1), floats(seed=2)
    exact = a + b
    want = np.where(np.isnan(exact), np.float32(0), np.clip(exact, 0, 1)).astype("f4")
    np.testing.assert_array_equal(apply(device, "add.sat.f32 $d, $a, $b;", "f4", a, b), want)
    clamped = np.where(np.isnan(a), np.float32(0), np.clip(a, 0, 1)).astype("f4")
    np.testing.assert_array_equal(apply(device, "cvt.sat.f32.f32 $d, $a;", "f4", a), clamped)


@pytest.mark.parametrize("kind", KINDS)
def test_extremes_and_signs(device: Device, kind: str) -> None:
    t = KINDS[kind]
    a, b = floats(t, seed=1), floats(t, seed=2)
    low = np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), np.fmin(a, b))
    high = np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.fmax(a, b))
    same(apply(device, f"min.{kind} $d, $a, $b;", t, a, b), low)
    same(apply(device, f"max.{kind} $d, $a, $b;", t, a, b), high)
    same(apply(device, f"abs.{kind} $d, $a;", t, a), np.abs(a))
    same(apply(device, f"neg.{kind} $d, $a;", t, a), -a)
    same(apply(device, f"copysign.{kind} $d, $a, $b;", t, a, b), np.copysign(b, a))
    same(apply(device, f"sqrt.rn.{kind} $d, $a;", t, a), np.sqrt(a))
    same(apply(device, f"rcp.rn.{kind} $d, $a;", t, a), (1 / a).astype(t))
    if kind == "f32":
        same(
            apply(device, "max.NaN.f32 $d, $a, $b;", t, a, b),
            np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), high),
        )


COMPARE = {
    "eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "ne": lambda a, b: (a < b) | (a > b),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["f32", "f64", "f16"])
def test_comparisons_with_nan(device: Device, kind: str) -> None:
    t = {"f16": "f2"}.get(kind) or KINDS[kind]
    a, b = floats(t, seed=1), floats(t, seed=2)
    unordered = np.isnan(a) | np.isnan(b)
    for name, function in COMPARE.items():
        text = "setp.{}." + kind + " $p, $a, $b; selp.u32 $d, 1, 0, $p;"
        same(apply(device, text.format(name), "u4", a, b), function(a, b).astype("u4"))
        same(apply(device, text.format(name + "u"), "u4", a, b), (function(a, b) | unordered).astype("u4"))
    same(apply(device, text.format("num"), "u4", a, b), (~unordered).astype("u4"))
    same(apply(device, text.format("nan"), "u4", a, b), unordered.astype("u4"))


def test_comparisons_that_give_numbers(device: Device) -> None:
    a, b = floats("f2", seed=1), floats("f2", seed=2)
    same(apply(device, "set.eq.f16.f16 $d, $a, $b;", "f2", a, b), (a == b).astype("f2"))
    same(apply(device, "set.ltu.u16.f16 $d, $a, $b;", "u2", a, b), np.where(a >= b, 0, 0xFFFF).astype("u2"))
    c, d = floats("f4", seed=1), floats("f4", seed=2)
    same(apply(device, "set.gt.f32.f32 $d, $a, $b;", "f4", c, d), (c > d).astype("f4"))
    same(apply(device, "set.le.u32.f32 $d, $a, $b;", "u4", c, d), np.where(c <= d, 0xFFFFFFFF, 0).astype("u4"))


def test_kinds_of_numbers(device: Device) -> None:
    a = floats(seed=1)
    subnormal = (a != 0) & (np.abs(a) < np.finfo("f4").tiny)
    kinds = {"finite": np.isfinite(a), "infinite": np.isinf(a), "notanumber": np.isnan(a), "subnormal": subnormal,
             "number": ~np.isnan(a), "normal": np.isfinite(a) & ~subnormal & (a != 0)}  # fmt: skip
    for name, want in kinds.items():
        same(apply(device, f"testp.{name}.f32 $p, $a; selp.u32 $d, 1, 0, $p;", "u4", a), want.astype("u4"))


FUNCTIONS: dict[str, tuple[Callable[[Array], Array], float]] = {
    "ex2.approx": (np.exp2, 2**-22), "lg2.approx": (np.log2, 2**-22), "rcp.approx": (lambda x: 1 / x, 2**-23),
    "rsqrt.approx": (lambda x: 1 / np.sqrt(x), 2**-22.9), "sqrt.approx": (np.sqrt, 2**-23), "tanh.approx": (np.tanh, 2**-11),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("flush", ["", ".ftz"])
def test_approximations_are_within_their_documented_errors(device: Device, name: str, flush: str) -> None:
    if name == "tanh.approx" and flush:
        pytest.skip("it has no .ftz")
    function, error = FUNCTIONS[name]
    a = floats(seed=1)
    got = apply(device, f"{name}{flush}.f32 $d, $a;", "f4", a)
    exact = function((flushed(a) if flush else a).astype("f8"))
    want = flushed(exact.astype("f4")) if flush else exact.astype("f4")
    special = ~np.isfinite(want) | (want == 0)
    same(got[special], want[special])
    np.testing.assert_allclose(got[~special], want[~special], rtol=error + 2**-24, atol=2e-45)


def test_angles(device: Device) -> None:
    a = np.random.default_rng(1).uniform(-3.2, 3.2, 500).astype("f4")
    for name, function in (("sin", np.sin), ("cos", np.cos)):
        got = apply(device, f"{name}.approx.f32 $d, $a;", "f4", a)
        np.testing.assert_allclose(got, function(a.astype("f8")), atol=2**-20.5)


def test_approximate_division_gives_0_for_large_divisors(device: Device) -> None:
    a = np.array([1, -1, np.inf, 1, 6, np.nan, 1, 3], "f4")
    b = np.array([2**127, 2**127, 2**127, np.inf, 4, 2, 2**126, 0], "f4")
    want = np.array([0, -0.0, np.nan, 0, 1.5, np.nan, 2.0**-126, np.inf], "f4")
    same(apply(device, "div.approx.f32 $d, $a, $b;", "f4", a, b), want)
    full = np.array([2.0**-127, -(2.0**-127), np.inf, 0, 1.5, np.nan, 2.0**-126, np.inf], "f4")
    same(apply(device, "div.full.f32 $d, $a, $b;", "f4", a, b), full)


HALVES = {"f16": np.dtype("f2"), "bf16": np.dtype(ml_dtypes.bfloat16)}


def halves(kind: str, seed: int) -> Array:
    if kind == "f16":
        return floats("f2", seed=seed)
    return floats("f4", seed=seed).astype(ml_dtypes.bfloat16)


def same_halves(got: Array, want: Array) -> None:
    nan = np.isnan(want.astype("f4"))
    np.testing.assert_array_equal(np.isnan(got.astype("f4")), nan)
    np.testing.assert_array_equal(got.view("u2")[~nan], want.view("u2")[~nan])


@pytest.mark.parametrize("kind", HALVES)
def test_halves(device: Device, kind: str) -> None:
    t = HALVES[kind]
    a, b, c = (halves(kind, seed) for seed in (1, 2, 3))
    wide = [x.astype("f8") for x in (a, b, c)]
    for name in ("add", "sub", "mul"):
        want = OPERATIONS[name](wide[0], wide[1]).astype("f4" if kind == "f16" else "f8").astype(t)
        raw = apply(device, f"{name}.rn.{kind} $d, $a, $b;", "u2", a.view("u2"), b.view("u2"))
        same_halves(raw.view(t), want)
        size = a.size // 2 * 2
        pairs = [x[:size].view("u2").view("u4") for x in (a, b)]
        both = apply(device, f"{name}.{kind}x2 $d, $a, $b;", "u4", *pairs)
        same_halves(both.view("u2").view(t), want[:size])
    raw = apply(device, f"fma.rn.{kind} $d, $a, $b, $c;", "u2", *(x.view("u2") for x in (a, b, c)))
    same_halves(raw.view(t), fused(a, b, c, t))
    for name, function in (("min", np.fmin), ("max", np.fmax)):
        zeros = (wide[0] == 0) & (wide[1] == 0)
        raw = apply(device, f"{name}.{kind} $d, $a, $b;", "u2", a.view("u2"), b.view("u2"))
        same_halves(raw.view(t)[~zeros], function(wide[0], wide[1]).astype(t)[~zeros])
    raw = apply(device, f"neg.{kind} $d, $a;", "u2", a.view("u2"))
    same_halves(raw.view(t), -a)


def fused(a: Array, b: Array, c: Array, t: np.dtype[np.generic]) -> Array:
    """a * b + c, rounded once."""
    found = []
    for x, y, z in zip(*(v.astype("f8").tolist() for v in (a, b, c)), strict=True):
        if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
            found.append(x * y + z)
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact == 0:
            found.append(x * y + z)
            continue
        digits, low = (11, -14) if t == np.dtype("f2") else (8, -126)
        exponent = max(math.floor(math.log2(abs(exact))), low)
        while Fraction(2) ** (exponent + 1) <= abs(exact):
            exponent += 1
        while exponent > low and Fraction(2) ** exponent > abs(exact):
            exponent -= 1
        unit = Fraction(2) ** (exponent - digits + 1)
        value = round(exact / unit) * unit
        top = float(ml_dtypes.finfo(t).max)
        found.append(math.copysign(math.inf if abs(value) > top else float(abs(value)), exact))
    return np.array(found, "f8").astype(t)
