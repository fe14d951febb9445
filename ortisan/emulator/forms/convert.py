"""cvt, and addresses of one space as those of another."""

from __future__ import annotations

from ortisan.emulator.forms.form import RELU, ROUNDING, SATURATE, Constant, Emitted, Form, form
from ortisan.emulator.syntax import BITS, Operand, Register

_KINDS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64")
_INTEGRAL = {"rni": 1, "rzi": 2, "rmi": 3, "rpi": 4}
_DIRECT = {
    ("f32", "f16"), ("f32", "bf16"), ("f16", "f32"), ("bf16", "f32"), ("f32", "s32"), ("f32", "u32"), ("f64", "f32"),
}  # fmt: skip
_INTEGER = {
    (64, 32): "cvt.b64.{sign}32",
    (32, 64): "cvt.b32.b64",
    (32, 16): "cvt.b32.{sign}16",
    (16, 32): "cvt.b16.b32",
}
_WINDOWS = {"shared": 1 << 56, "local": 2 << 56, "global": 0, "const": 0}


@form("cvt")
def _convert(f: Form) -> Emitted:
    flags = f.flush() | f.flag("sat", SATURATE) | f.flag("relu", RELU)
    integral, rounding = f.take(*_INTEGRAL), f.take(*ROUNDING, "rna")
    source = f.type(*_KINDS)
    to = f.type(*_KINDS, "f16x2", "bf16x2", "tf32")
    if to == "tf32":
        return _tf32(f, source, rounding, flags)
    flags |= ROUNDING[rounding or "rn"] if rounding != "rna" else 0
    if rounding == "rna":
        raise f.error(".rna is only known for .tf32")
    if to in ("f16x2", "bf16x2"):
        d, a, b = f.operands(3)
        return Emitted(f"cvt.{to}.f32", (f.result(d, 32),), (f.source(a, "f32"), f.source(b, "f32")), flags)
    d, a = f.operands(2)
    if not isinstance(d, Register):
        raise f.error("the result is no register")
    return _of_kinds(f, (to, source), d, a, (flags, _INTEGRAL.get(integral or "", 0)))


def _tf32(f: Form, source: str, rounding: str | None, flags: int) -> Emitted:
    if source != "f32" or rounding not in ("rna", "rn") or flags:
        raise f.error("only cvt.rna.tf32.f32 and cvt.rn.tf32.f32 are known")
    d, a = f.operands(2)
    return Emitted("cvt.tf32.f32", (f.result(d, 32),), (f.source(a, "b32"),), 0, int(rounding == "rn"))


def _of_kinds(f: Form, kinds: tuple[str, str], d: Register, a: Operand | None, flags: tuple[int, int]) -> Emitted:
    (to, source), (bits_of_flags, integral) = kinds, flags
    bits = a.bits if isinstance(a, Register) else max(BITS[source], 16)
    if d.bits < BITS[to] or bits < BITS[source]:
        raise f.error("a register is narrower than its type")
    place = f.source(a, f"b{bits}")
    simple = not bits_of_flags and not integral and d.bits == BITS[to] and bits == BITS[source]
    if simple and (to, source) in _DIRECT:
        return Emitted(f"cvt.{to}.{source}", (d,), (place,))
    if simple and to[0] in "us" and source[0] in "us":
        if BITS[to] == BITS[source]:
            return Emitted(f"mov.b{d.bits}", (d,), (place,))
        if known := _INTEGER.get((BITS[to], BITS[source])):
            return Emitted(known.format(sign=source[0]), (d,), (place,))
    packed = _KINDS.index(source) | bits // 8 << 8 | _KINDS.index(to) << 16 | d.bits // 8 << 24 | integral << 32
    return Emitted("cvt", (d,), (place,), bits_of_flags, packed)


@form("cvta")
def _generic(f: Form) -> Emitted:
    f.type("u64")
    into = f.take("to")
    space = f.need("shared", "local", "global", "const", "param")
    d, a = f.operands(2)
    results, source = (f.result(d, 64),), f.source(a, "u64")
    if space == "param":
        handler, other = ("sub.b64" if into else "add.b64"), Constant(8, "%parameters")
        return Emitted(handler, results, (source, other))
    if _WINDOWS[space] == 0:
        return Emitted("mov.b64", results, (source,))
    return Emitted("cvta.to" if into else "cvta", results, (source,), 0, _WINDOWS[space])


@form("isspacep")
def _is_space(f: Form) -> Emitted:
    space = f.need("shared", "local", "global")
    d, a = f.operands(2)
    return Emitted("isspacep", (f.result(d, 1),), (f.source(a, "u64"),), 0, _WINDOWS[space])
