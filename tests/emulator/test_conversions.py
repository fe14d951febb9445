"""cvt of every pair of types, with rounding and saturation."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from ortisan.emulator import Device
from tests.emulator.ptx import Array, apply, floats, integers, same
from tests.emulator.test_floats import same_halves

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")]

INTEGERS = {f"{sign}{bits}": f"{'i' if sign == 's' else 'u'}{bits // 8}" for sign in "us" for bits in (8, 16, 32, 64)}
FLOATS = {"f16": "f2", "f32": "f4", "f64": "f8"}
ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def convert(device: Device, text: str, to: str, a: Array) -> Array:
    """8-bit types are in registers of 16 bits."""
    return apply(device, text, to, a)


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", INTEGERS)
def test_integers(device: Device, source: str, to: str) -> None:
    a = integers(INTEGERS[source])
    if source == "s8":
        a = a.view("u1")
    want = a.view(INTEGERS[source])
    same(convert(device, f"cvt.{to}.{source} $d, $a;", INTEGERS[to], a), want.astype(INTEGERS[to]))
    info = np.iinfo(INTEGERS[to])
    clamped = np.array([min(max(int(x), info.min), info.max) for x in want], INTEGERS[to])
    same(convert(device, f"cvt.sat.{to}.{source} $d, $a;", INTEGERS[to], a), clamped)


def test_wide_registers_hold_extended_values(device: Device) -> None:
    a = integers("u4")
    same(apply(device, "cvt.s32.s8 $d, $a;", "i4", a), a.astype("i1").astype("i4"))
    same(apply(device, "cvt.u32.u16 $d, $a;", "u4", a), a & np.uint32(0xFFFF))
    same(apply(device, "cvt.s64.s16 $d, $a;", "i8", a), a.astype("i2").astype("i8"))


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("mode", ROUND)
def test_floats_to_integers(device: Device, source: str, to: str, mode: str) -> None:
    a = floats(FLOATS[source])
    a[200:400] = (np.arange(200) / 4 - 25).astype(a.dtype)
    info = np.iinfo(INTEGERS[to])
    nan = 1 << info.bits - 1 if source == "f64" or info.bits == 64 else 0

    def one(x: float) -> int:
        if math.isnan(x):
            return nan
        return min(max(int(x), info.min), info.max) if math.isfinite(x) else (info.max if x > 0 else info.min)

    mask = (1 << info.bits) - 1
    want = np.array([one(x) & mask for x in ROUND[mode](a.astype("f8")).tolist()], f"u{info.bits // 8}")
    same(convert(device, f"cvt.{mode}.{to}.{source} $d, $a;", INTEGERS[to], a), want.view(INTEGERS[to]))


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", FLOATS)
def test_integers_to_floats(device: Device, source: str, to: str) -> None:
    a = integers(INTEGERS[source])
    raw = a.view("u1") if source == "s8" else a
    want = np.array([float(int(x)) for x in a]) if to == "f64" else a.astype(FLOATS[to])
    if to == "f16":
        want = a.astype("f8").astype("f2")
    same(convert(device, f"cvt.rn.{to}.{source} $d, $a;", FLOATS[to], raw), want)
    toward = convert(device, f"cvt.rz.{to}.{source} $d, $a;", FLOATS[to], raw)
    for x, y, near in zip(a.tolist(), toward.astype("f8").tolist(), want.astype("f8").tolist(), strict=True):
        assert abs(int(y)) <= abs(x)
        assert math.isinf(near) or int(y) == int(near) or abs(int(near)) > abs(x)


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("to", FLOATS)
def test_floats(device: Device, source: str, to: str) -> None:
    a = floats(FLOATS[source])
    if source == to:
        for mode, function in ROUND.items():
            same(convert(device, f"cvt.{mode}.{to}.{source} $d, $a;", FLOATS[to], a), function(a))
        return
    rounding = ".rn" if FLOATS[to] < FLOATS[source] else ""
    same(convert(device, f"cvt{rounding}.{to}.{source} $d, $a;", FLOATS[to], a), a.astype(FLOATS[to]))
    if rounding:
        near, wide = a.astype(FLOATS[to]), a.astype("f8")
        for mode, function in (("rm", np.less_equal), ("rp", np.greater_equal)):
            got = convert(device, f"cvt.{mode}.{to}.{source} $d, $a;", FLOATS[to], a)
            finite = ~np.isnan(a)
            assert function(got.astype("f8"), wide)[finite].all()
            exact = near.astype("f8") == wide
            same(got[exact], near[exact])
            neighbour = np.nextafter(got, np.array(np.inf if mode == "rm" else -np.inf, got.dtype)).astype("f8")
            assert (~function(neighbour, wide) | exact | np.isinf(wide))[finite].all()


def test_bfloat(device: Device) -> None:
    a = floats("f4")
    got = apply(device, "cvt.rn.bf16.f32 $d, $a;", "u2", a).view(ml_dtypes.bfloat16)
    same_halves(got, a.astype(ml_dtypes.bfloat16))
    same(apply(device, "cvt.f32.bf16 $d, $a;", "f4", got.view("u2")), got.astype("f4"))
    zero = apply(device, "cvt.rn.relu.bf16.f32 $d, $a;", "u2", a).view(ml_dtypes.bfloat16)
    same_halves(zero, np.where(a < 0, np.float32(0), a).astype(ml_dtypes.bfloat16))


def test_pairs(device: Device) -> None:
    a, b = floats("f4", seed=1), floats("f4", seed=2)
    for kind, t in (("f16", np.dtype("f2")), ("bf16", np.dtype(ml_dtypes.bfloat16))):
        got = apply(device, f"cvt.rn.{kind}x2.f32 $d, $a, $b;", "u4", a, b).view("u2").reshape(-1, 2)
        same_halves(got[:, 1].copy().view(t), a.astype(t))
        same_halves(got[:, 0].copy().view(t), b.astype(t))


def test_tf32(device: Device) -> None:
    a = floats("f4")
    got = apply(device, "cvt.rna.tf32.f32 $d, $a;", "f4", a)
    assert not (got.view("u4")[~np.isnan(a)] & 0x1FFF).any()
    normal = np.isfinite(a) & (np.abs(a) > np.finfo("f4").tiny) & np.isfinite(got)
    scale = np.exp2(np.floor(np.log2(np.abs(a[normal].astype("f8")))) - 10)
    ratio = a[normal] / scale
    want = np.sign(ratio) * np.floor(np.abs(ratio) + 0.5) * scale
    np.testing.assert_array_equal(got[normal], want.astype("f4"))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(a))
