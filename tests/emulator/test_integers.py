"""Integer instructions against Python's integers and numpy, on random and extreme operands."""

from __future__ import annotations

import numpy as np
import pytest

from ortisan.emulator import Device
from tests.emulator.ptx import Array, apply, integers, run, same

pytestmark = pytest.mark.build

KINDS = {"u16": "u2", "s16": "i2", "u32": "u4", "s32": "i4", "u64": "u8", "s64": "i8"}


def exact(kind: str, function: object, *operands: Array) -> Array:
    """A function of Python's integers, cut to a type."""
    bits = 8 * np.dtype(kind).itemsize
    values = [function(*map(int, numbers)) & ((1 << bits) - 1) for numbers in zip(*operands, strict=True)]  # type: ignore[operator]
    return np.array(values, f"u{bits // 8}").view(kind)


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("kind", KINDS)
def test_arithmetic(device: Device, kind: str) -> None:
    t = KINDS[kind]
    a, b, c = (integers(t, seed=seed) for seed in (1, 2, 3))
    bits = 8 * a.itemsize
    same(apply(device, f"add.{kind} $d, $a, $b;", t, a, b), exact(t, lambda x, y: x + y, a, b))
    same(apply(device, f"sub.{kind} $d, $a, $b;", t, a, b), exact(t, lambda x, y: x - y, a, b))
    same(apply(device, f"mul.lo.{kind} $d, $a, $b;", t, a, b), exact(t, lambda x, y: x * y, a, b))
    same(apply(device, f"mul.hi.{kind} $d, $a, $b;", t, a, b), exact(t, lambda x, y: x * y >> bits, a, b))
    same(apply(device, f"mad.lo.{kind} $d, $a, $b, $c;", t, a, b, c), exact(t, lambda x, y, z: x * y + z, a, b, c))
    same(
        apply(device, f"mad.hi.{kind} $d, $a, $b, $c;", t, a, b, c),
        exact(t, lambda x, y, z: (x * y >> bits) + z, a, b, c),
    )
    same(apply(device, f"min.{kind} $d, $a, $b;", t, a, b), np.minimum(a, b))
    same(apply(device, f"max.{kind} $d, $a, $b;", t, a, b), np.maximum(a, b))
    same(apply(device, f"sad.{kind} $d, $a, $b, $c;", t, a, b, c), exact(t, lambda x, y, z: abs(x - y) + z, a, b, c))
    nonzero = np.where(b == 0, b.dtype.type(7), b)
    same(apply(device, f"div.{kind} $d, $a, $b;", t, a, nonzero), exact(t, quotient, a, nonzero))
    same(
        apply(device, f"rem.{kind} $d, $a, $b;", t, a, nonzero),
        exact(t, lambda x, y: x - y * quotient(x, y), a, nonzero),
    )
    if kind[0] == "s":
        same(apply(device, f"abs.{kind} $d, $a;", t, a), exact(t, abs, a))
        same(apply(device, f"neg.{kind} $d, $a;", t, a), exact(t, lambda x: -x, a))


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
def test_products_that_are_twice_as_wide(device: Device, kind: str) -> None:
    t = KINDS[kind]
    wide = f"{t[0]}{2 * int(t[1])}"
    a, b, c = integers(t, seed=1), integers(t, seed=2), integers(wide, seed=3)
    same(apply(device, f"mul.wide.{kind} $d, $a, $b;", wide, a, b), exact(wide, lambda x, y: x * y, a, b))
    same(
        apply(device, f"mad.wide.{kind} $d, $a, $b, $c;", wide, a, b, c),
        exact(wide, lambda x, y, z: x * y + z, a, b, c),
    )


def test_saturation_and_24_bits(device: Device) -> None:
    a, b, c = (integers("i4", seed=seed) for seed in (1, 2, 3))
    clamp = np.iinfo("i4")
    for name, function in (("add", np.add), ("sub", np.subtract)):
        want = np.clip(function(a.astype("i8"), b), clamp.min, clamp.max).astype("i4")
        same(apply(device, f"{name}.sat.s32 $d, $a, $b;", "i4", a, b), want)

    def low(x: int) -> int:
        return ((x & 0xFFFFFF) ^ 0x800000) - 0x800000

    same(apply(device, "mul24.lo.s32 $d, $a, $b;", "i4", a, b), exact("i4", lambda x, y: low(x) * low(y), a, b))
    same(apply(device, "mul24.hi.s32 $d, $a, $b;", "i4", a, b), exact("i4", lambda x, y: low(x) * low(y) >> 16, a, b))
    same(
        apply(device, "mad24.lo.s32 $d, $a, $b, $c;", "i4", a, b, c),
        exact("i4", lambda x, y, z: low(x) * low(y) + z, a, b, c),
    )


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic_and_shifts(device: Device, bits: int) -> None:
    t, s = f"u{bits // 8}", f"i{bits // 8}"
    a, b = integers(t, seed=1), integers(t, seed=2)
    for name, function in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        same(apply(device, f"{name}.b{bits} $d, $a, $b;", t, a, b), function(a, b))
    same(apply(device, f"not.b{bits} $d, $a;", t, a), ~a)
    same(apply(device, f"cnot.b{bits} $d, $a;", t, a), (a == 0).astype(t))
    by = integers("u4", seed=4) % np.uint32(80)
    by[:4] = [0, bits - 1, bits, 0xFFFFFFFF]
    same(apply(device, f"shl.b{bits} $d, $a, $b;", t, a, by), exact(t, lambda x, n: x << min(n, 64), a, by))
    same(apply(device, f"shr.u{bits} $d, $a, $b;", t, a, by), exact(t, lambda x, n: x >> n, a, by))
    same(apply(device, f"shr.s{bits} $d, $a, $b;", s, a.view(s), by), exact(s, lambda x, n: x >> n, a.view(s), by))


@pytest.mark.parametrize("bits", [32, 64])
def test_counts_and_fields(device: Device, bits: int) -> None:
    t, s = f"u{bits // 8}", f"i{bits // 8}"
    a, b = integers(t, seed=1), integers(t, seed=2)
    same(apply(device, f"popc.b{bits} $d, $a;", "u4", a), exact("u4", lambda x: bin(x).count("1"), a))
    same(apply(device, f"clz.b{bits} $d, $a;", "u4", a), exact("u4", lambda x: bits - x.bit_length(), a))
    same(apply(device, f"brev.b{bits} $d, $a;", t, a), exact(t, lambda x: int(f"{x:0{bits}b}"[::-1], 2), a))
    same(apply(device, f"bfind.u{bits} $d, $a;", "u4", a), exact("u4", lambda x: x.bit_length() - 1, a))
    signed = a.view(s)
    same(
        apply(device, f"bfind.s{bits} $d, $a;", "u4", signed),
        exact("u4", lambda x: (~x if x < 0 else x).bit_length() - 1, signed),
    )
    shift = exact("u4", lambda x: bits - x.bit_length() if x else -1, a)
    same(apply(device, f"bfind.shiftamt.u{bits} $d, $a;", "u4", a), shift)
    for begin, length in ((0, 8), (5, 11), (bits - 3, 9), (0, bits), (7, 0), (bits - 1, 1)):
        mask = (1 << length) - 1
        field = exact(t, lambda x, p=begin, m=mask: x >> p & m, a)
        same(apply(device, f"bfe.u{bits} $d, $a, {begin}, {length};", t, a), field)
        inserted = exact(t, lambda x, y, p=begin, m=mask: (y & ~(m << p)) | (x & m) << p, a, b)
        same(apply(device, f"bfi.b{bits} $d, $a, $b, {begin}, {length};", t, a, b), inserted)
        if length and begin + length <= bits:
            extended = exact(s, lambda x, p=begin, n=length: ((x >> p & (1 << n) - 1) ^ 1 << n - 1) - (1 << n - 1), a)
            same(apply(device, f"bfe.s{bits} $d, $a, {begin}, {length};", s, signed), extended)


def test_bytes_and_tables(device: Device) -> None:
    a, b, c = (integers("u4", seed=seed) for seed in (1, 2, 3))

    def permute(x: int, y: int, z: int) -> int:
        source, result = y << 32 | x, 0
        for k in range(4):
            pick = z >> 4 * k & 15
            byte = source >> 8 * (pick & 7) & 255
            result |= (255 * (byte >> 7) if pick & 8 else byte) << 8 * k
        return result

    same(apply(device, "prmt.b32 $d, $a, $b, $c;", "u4", a, b, c), exact("u4", permute, a, b, c))
    few = c & np.uint32(3)
    same(
        apply(device, "prmt.b32.f4e $d, $a, $b, $c;", "u4", a, b, few),
        exact("u4", lambda x, y, z: (y << 32 | x) >> 8 * z, a, b, few),
    )
    for table in (0x96, 0xE8, 0x01, 0x80):
        want = np.zeros_like(a)
        for k in range(8):
            if table >> k & 1:
                want |= (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
        same(apply(device, f"lop3.b32 $d, $a, $b, $c, {table};", "u4", a, b, c), want)
    by = c % np.uint32(40)
    for way, function in (("l", lambda x, y, n: (y << 32 | x) << n >> 32), ("r", lambda x, y, n: (y << 32 | x) >> n)):
        clamped, wrapped = np.minimum(by, np.uint32(32)), by % np.uint32(32)
        same(apply(device, f"shf.{way}.wrap.b32 $d, $a, $b, $c;", "u4", a, b, by), exact("u4", function, a, b, wrapped))
        same(
            apply(device, f"shf.{way}.clamp.b32 $d, $a, $b, $c;", "u4", a, b, by), exact("u4", function, a, b, clamped)
        )
    left, right = a.view("i1").reshape(-1, 4).astype("i8"), b.view("i1").reshape(-1, 4).astype("i8")
    want = ((left * right).sum(1) + c.view("i4")).astype("i4")
    same(apply(device, "dp4a.s32.s32 $d, $a, $b, $c;", "i4", a, b, c), want)
    unsigned = a.view("u1").reshape(-1, 4).astype("i8")
    same(
        apply(device, "dp4a.u32.s32 $d, $a, $b, $c;", "i4", a, b, c),
        ((unsigned * right).sum(1) + c.view("i4")).astype("i4"),
    )
    words = a.view("i2").reshape(-1, 2).astype("i8")
    same(
        apply(device, "dp2a.hi.s32.s32 $d, $a, $b, $c;", "i4", a, b, c),
        ((words * right[:, 2:]).sum(1) + c.view("i4")).astype("i4"),
    )


def test_carries_join_words(device: Device) -> None:
    a, b = integers("u8", seed=1), integers("u8", seed=2)
    split = ".reg .b32 %x<9>; mov.b64 {%x1, %x2}, $a; mov.b64 {%x3, %x4}, $b;"
    add = f"{split} add.cc.u32 %x5, %x1, %x3; addc.u32 %x6, %x2, %x4; mov.b64 $d, {{%x5, %x6}};"
    same(apply(device, add, "u8", a, b), a + b)
    sub = f"{split} sub.cc.u32 %x5, %x1, %x3; subc.u32 %x6, %x2, %x4; mov.b64 $d, {{%x5, %x6}};"
    same(apply(device, sub, "u8", a, b), a - b)
    product = (
        f"{split} mul.lo.u32 %x5, %x1, %x3; mul.hi.u32 %x6, %x1, %x3; "
        "mad.lo.cc.u32 %x6, %x1, %x4, %x6; mad.lo.u32 %x6, %x2, %x3, %x6; mov.b64 $d, {%x5, %x6};"
    )
    same(apply(device, product, "u8", a, b), a * b)


def test_moves_take_registers_apart(device: Device) -> None:
    a = integers("u8")
    text = ".reg .b16 %x<5>; mov.b64 {%x1, %x2, %x3, %x4}, $a; mov.b64 $d, {%x4, %x3, %x2, %x1};"
    same(apply(device, text, "u8", a), a.view("u2").reshape(-1, 4)[:, ::-1].copy().view("u8").ravel())
    text = ".reg .b32 %x; mov.b64 {_, %x}, $a; cvt.u64.u32 $d, %x;"
    same(apply(device, text, "u8", a), a >> np.uint64(32))


@pytest.mark.parametrize("kind", [*KINDS, "b32"])
def test_comparisons(device: Device, kind: str) -> None:
    t = KINDS.get(kind, "u4")
    a, b = integers(t, seed=1), integers(t, seed=2)
    names = {"eq": np.equal, "ne": np.not_equal}
    if kind[0] != "b":
        names |= {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
    for name, function in names.items():
        text = f"setp.{name}.{kind} $p, $a, $b; selp.u32 $d, 1, 0, $p;"
        same(apply(device, text, "u4", a, b), function(a, b).astype("u4"))
    if kind[0] == "u":
        same(apply(device, f"setp.hi.{kind} $p, $a, $b; selp.u32 $d, 1, 0, $p;", "u4", a, b), (a > b).astype("u4"))
    text = f"setp.eq.{kind} $p|%p2, $a, $b; selp.u32 $d, 5, 7, %p2;"
    same(apply(device, text, "u4", a, b), np.where(a == b, 7, 5).astype("u4"))
    text = f"setp.eq.u32 %p3, 1, 1; setp.ne.and.{kind} $p, $a, $b, !%p3; setp.ne.xor.{kind} $p, $a, $b, %p3; selp.u32 $d, 1, 0, $p;"
    same(apply(device, text, "u4", a, b), (a == b).astype("u4"))
    same(apply(device, f"set.ne.u32.{kind} $d, $a, $b;", "u4", a, b), np.where(a != b, 0xFFFFFFFF, 0).astype("u4"))


def test_predicates_and_selections(device: Device) -> None:
    a, b, c = (integers("i4", seed=seed) for seed in (1, 2, 3))
    text = (
        "setp.lt.s32 $p, $a, 0; setp.gt.s32 %p2, $b, 5; and.pred %p3, $p, %p2; or.pred %p4, $p, %p2; xor.pred %p5, %p3, %p4; "
        "not.pred %p6, %p5; mov.pred %p7, %p6; selp.s32 $d, $a, $b, %p7;"
    )
    same(apply(device, text, "i4", a, b), np.where((a < 0) == (b > 5), a, b))
    same(apply(device, "slct.s32.s32 $d, $a, $b, $c;", "i4", a, b, c), np.where(c >= 0, a, b))


def test_lanes_special_registers(device: Device) -> None:
    names = ["%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%ntid.y", "%nctaid.x", "%laneid", "%warpid", "%lanemask_lt",
             "%lanemask_ge", "%nwarpid"]  # fmt: skip
    out = np.zeros((3, 2, 96, len(names)), "u4")
    body = """
 ld.param.u64 %d1, [out]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mad.lo.u32 %r1, %r2, 2, %r1;
 mov.u32 %r3, %tid.x; mov.u32 %r4, %tid.y; mov.u32 %r5, %tid.z; mad.lo.u32 %r4, %r5, 4, %r4; mad.lo.u32 %r3, %r4, 8, %r3;
 mad.lo.u32 %r1, %r1, 96, %r3;"""
    body += f" mad.wide.u32 %d1, %r1, {4 * len(names)}, %d1;"
    body += (
        "".join(f" mov.u32 %r9, {name}; st.global.u32 [%d1+{4 * k}], %r9;" for k, name in enumerate(names)) + " ret;"
    )
    run(device, ["u64 out"], body, out, grid=(2, 3), block=(8, 4, 3))
    y, x, t = np.indices((3, 2, 96)).astype("u4")
    lane = t % 32
    below = ((1 << lane.astype("u8")) - 1).astype("u4")
    want = [t % 8, t // 8 % 4, t // 32, x, y, 4 + 0 * t, 2 + 0 * t, lane, t // 32, below, ~below, 3 + 0 * t]
    for k, values in enumerate(want):
        np.testing.assert_array_equal(out[..., k], values, names[k])
