"""Integer arithmetic. What is also done to floats goes on to floats.py."""

from __future__ import annotations

from ortisan.emulator.forms.floats import FLOATS, float_form
from ortisan.emulator.forms.form import FIRST, Emitted, Form, form
from ortisan.emulator.syntax import BITS

INTEGERS = tuple(f"{sign}{bits}" for sign in "us" for bits in (16, 32, 64))
CARRY_IN, CARRY_OUT, BORROW, HIGH = (FIRST << k for k in range(4))


def is_float(f: Form) -> bool:
    return any(word in FLOATS for word in f.words)


def _plain(f: Form, handler: str, kind: str, count: int) -> Emitted:
    to, *sources = f.operands(count + 1)
    return Emitted(handler, (f.result(to, BITS[kind]),), tuple(f.source(source, kind) for source in sources))


def _carried(f: Form, kind: str, flags: int, count: int) -> Emitted:
    flags |= f.flag("cc", CARRY_OUT)
    to, *sources = f.operands(count + 1)
    places = [f.source(source, kind) for source in sources] + [None] * (3 - count)
    return Emitted(f"carry.b{BITS[kind]}", (f.result(to, BITS[kind]),), tuple(places), flags)


@form("add", "sub")
def _add(f: Form) -> Emitted:
    if is_float(f):
        return float_form(f)
    kind = f.type(*INTEGERS)
    if "cc" in f.words:
        return _carried(f, kind, BORROW if f.base == "sub" else 0, 2)
    saturated = kind == "s32" and f.take("sat")
    return _plain(f, f"{f.base}.sat.s32" if saturated else f"{f.base}.b{BITS[kind]}", kind, 2)


@form("addc", "subc")
def _add_carry(f: Form) -> Emitted:
    return _carried(f, f.type(*INTEGERS), CARRY_IN | (BORROW if f.base == "subc" else 0), 2)


@form("mul", "mad", "madc")
def _multiply(f: Form) -> Emitted:
    if is_float(f):
        return float_form(f)
    kind, part = f.type(*INTEGERS), f.need("lo", "hi", "wide")
    count = 2 if f.base == "mul" else 3
    if f.base == "madc" or "cc" in f.words:
        return _carried(f, kind, (CARRY_IN if f.base == "madc" else 0) | (HIGH if part == "hi" else 0), count)
    if part != "wide":
        return _plain(f, f"{f.base}.{part}.{kind if part == 'hi' else f'b{BITS[kind]}'}", kind, count)
    to, a, b, *c = f.operands(count + 1)
    wide = f"{kind[0]}{2 * BITS[kind]}"
    sources = (f.source(a, kind), f.source(b, kind), *(f.source(operand, wide) for operand in c))
    return Emitted(f"{f.base}.wide.{kind}", (f.result(to, BITS[wide]),), sources)


@form("mul24", "mad24")
def _multiply24(f: Form) -> Emitted:
    kind, part = f.type("s32", "u32"), f.need("lo", "hi")
    made = _plain(f, f"{f.base}.{kind}", kind, 2 if f.base == "mul24" else 3)
    return Emitted(made.handler, made.results, made.sources, 0, 16 if part == "hi" else 0)


@form("div", "rem", "min", "max", "sad")
def _divide(f: Form) -> Emitted:
    if f.base != "sad" and is_float(f):
        return float_form(f)
    kind = f.type(*INTEGERS)
    return _plain(f, f"{f.base}.{kind}", kind, 3 if f.base == "sad" else 2)


@form("abs", "neg")
def _absolute(f: Form) -> Emitted:
    if is_float(f):
        return float_form(f)
    kind = f.type("s16", "s32", "s64")
    return _plain(f, f"{f.base}.{kind}", kind, 1)


@form("dp4a", "dp2a")
def _dot(f: Form) -> Emitted:
    low = f.need("lo", "hi") if f.base == "dp2a" else "lo"
    second, first = f.type("s32", "u32"), f.type("s32", "u32")
    to, a, b, c = f.operands(4)
    kind = "s32" if "s32" in (first, second) else "u32"
    sources = (f.source(a, first), f.source(b, second), f.source(c, kind))
    return Emitted(f"{f.base}.{first}.{second}", (f.result(to, 32),), sources, 0, int(low == "hi"))
