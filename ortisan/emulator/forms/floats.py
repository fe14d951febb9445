"""Arithmetic on floats of 16 to 64 bits, and functions."""

from __future__ import annotations

from ortisan.emulator.forms.form import FLUSH, NAN, RELU, ROUNDING, SATURATE, Emitted, Form, form
from ortisan.emulator.syntax import BITS

HALVES = ("f16", "f16x2", "bf16", "bf16x2")
FLOATS = ("f32", "f64", *HALVES)
_ONE = ("abs", "neg", "sqrt", "rcp", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh")
_COUNTS = {"fma": 3, "mad": 3, **dict.fromkeys(_ONE, 1)}


def float_form(f: Form) -> Emitted:
    kind = f.type(*FLOATS)
    flags = f.flush() | f.flag("sat", SATURATE) | f.flag("NaN", NAN)
    base = "fma" if f.base == "mad" else f.base
    if kind in HALVES:
        return _half(f, base, kind, flags)
    if base == "div" and (how := f.take("approx", "full")):
        return _call(f, "div.approx.f32", kind, flags, int(how == "approx"))
    rounding = f.take(*ROUNDING)
    if base in ("min", "max", "abs", "neg"):
        return _call(f, f"{base}.{kind}", kind, flags)
    flags |= ROUNDING[rounding or "rn"]
    return _call(f, f"{base}.x.{kind}" if flags else f"{base}.{kind}", kind, flags)


def _half(f: Form, base: str, kind: str, flags: int) -> Emitted:
    f.take("rn")
    flags |= f.flag("relu", RELU)
    if base not in ("add", "sub", "mul", "fma", "min", "max", "abs", "neg"):
        raise f.error(f"{base} of {kind} is not known")
    made = _call(f, f"{base}.{kind}", kind, flags)
    sources = made.sources if base in ("min", "max", "abs", "neg", "fma") else (*made.sources, None)
    return Emitted(made.handler, made.results, sources, flags)


def _call(f: Form, handler: str, kind: str, flags: int, immediate: int = 0) -> Emitted:
    to, *sources = f.operands(1 + _COUNTS.get(f.base, 2))
    places = tuple(f.source(source, kind) for source in sources)
    return Emitted(handler, (f.result(to, BITS[kind]),), places, flags, immediate)


@form("fma")
def _fma(f: Form) -> Emitted:
    return float_form(f)


@form("rcp", "sqrt")
def _root(f: Form) -> Emitted:
    if not f.take("approx"):
        return float_form(f)
    flags = f.flush()
    kind = f.type("f32", "f64")
    return _call(f, f"{f.base}.approx.{kind}", kind, flags)


@form("rsqrt", "sin", "cos", "lg2", "ex2", "tanh")
def _function(f: Form) -> Emitted:
    f.need("approx")
    flags = f.flush()
    halves = HALVES if f.base in ("ex2", "tanh") else ()
    kind = f.type("f32", *(("f64",) if f.base == "rsqrt" else ()), *halves)
    return _call(f, f"{f.base}.{kind}", kind, flags & FLUSH)


@form("copysign")
def _copy_sign(f: Form) -> Emitted:
    kind = f.type("f32", "f64")
    return _call(f, f"copysign.{kind}", kind, 0)


@form("testp")
def _test(f: Form) -> Emitted:
    names = ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    test, kind = f.need(*names), f.type("f32", "f64")
    to, a = f.operands(2)
    return Emitted(f"testp.{kind}", (f.result(to, 1),), (f.source(a, kind),), 0, names.index(test))
