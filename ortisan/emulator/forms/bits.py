"""Logic, shifts, fields, moves, selections and comparisons."""

from __future__ import annotations

from ortisan.emulator.forms.form import FIRST, Emitted, Form, Place, form
from ortisan.emulator.syntax import BITS, Number, Operand, Special, Vector

_B = ("b16", "b32", "b64")
_WIDE = ("u32", "u64", "s32", "s64")
_JOIN = {"and": FIRST, "or": FIRST << 1, "xor": FIRST << 2}
_NOT_C = FIRST << 3
_YES = {
    "u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "f32": 0x3F800000,
    "u16": 0xFFFF, "s16": 0xFFFF, "f16": 0x3C00, "bf16": 0x3F80,
}  # fmt: skip
"""Type of a result of `set` -> what stands for true."""
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def _all(f: Form, handler: str, to: tuple[Operand | None, int], sources: tuple[Place, ...], number: int = 0) -> Emitted:
    return Emitted(handler, (f.result(*to),), sources, 0, number)


@form("and", "or", "xor", "not", "cnot")
def _logic(f: Form) -> Emitted:
    kind = f.type(*_B, "pred")
    to, *sources = f.operands(2 if f.base in ("not", "cnot") else 3)
    return _all(f, f"{f.base}.{kind}", (to, BITS[kind]), tuple(f.source(source, kind) for source in sources))


@form("shl", "shr")
def _shift(f: Form) -> Emitted:
    kind = f.type(*_B, "u16", "u32", "u64", "s16", "s32", "s64")
    name = kind.replace("b", "u") if f.base == "shr" else f"b{BITS[kind]}"
    to, a, by = f.operands(3)
    return _all(f, f"{f.base}.{name}", (to, BITS[kind]), (f.source(a, kind), f.source(by, "u32")))


@form("shf")
def _funnel(f: Form) -> Emitted:
    handler = f"shf.{f.need('l', 'r')}.{f.need('wrap', 'clamp')}.{f.type('b32')}"
    to, *sources = f.operands(4)
    return _all(f, handler, (to, 32), tuple(f.source(source, "b32") for source in sources))


@form("popc", "clz", "brev")
def _count(f: Form) -> Emitted:
    kind = f.type("b32", "b64")
    to, a = f.operands(2)
    return _all(f, f"{f.base}.{kind}", (to, BITS[kind] if f.base == "brev" else 32), (f.source(a, kind),))


@form("bfind")
def _find(f: Form) -> Emitted:
    kind, shift = f.type(*_WIDE), f.take("shiftamt")
    to, a = f.operands(2)
    return _all(f, f"bfind.{kind}", (to, 32), (f.source(a, kind),), int(shift is not None))


@form("bfe", "bfi")
def _field(f: Form) -> Emitted:
    kind = f.type(*(_WIDE if f.base == "bfe" else ("b32", "b64")))
    to, *values, begin, length = f.operands(4 if f.base == "bfe" else 5)
    sources = (*(f.source(value, kind) for value in values), f.source(begin, "u32"), f.source(length, "u32"))
    return _all(f, f"{f.base}.{kind}", (to, BITS[kind]), sources)


@form("prmt")
def _permute(f: Form) -> Emitted:
    modes = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    f.type("b32")
    mode = f.take(*modes)
    to, *sources = f.operands(4)
    immediate = modes.index(mode) + 1 if mode else 0
    return _all(f, "prmt.b32", (to, 32), tuple(f.source(source, "b32") for source in sources), immediate)


@form("lop3")
def _logic3(f: Form) -> Emitted:
    f.type("b32")
    to, a, b, c, table = f.operands(5)
    if not isinstance(table, Number):
        raise f.error("the table is no number")
    return _all(f, "lop3.b32", (to, 32), tuple(f.source(source, "b32") for source in (a, b, c)), table.value & 255)


@form("selp")
def _select(f: Form) -> Emitted:
    kind = f.type()
    to, a, b, c = f.operands(4)
    predicate, negated = f.predicate(c)
    sources = (f.source(a, kind), f.source(b, kind), predicate)
    return _all(f, f"selp.b{BITS[kind]}", (to, BITS[kind]), sources, int(negated))


@form("setp", "set")
def _compare(f: Form) -> Emitted:
    flags = f.flush()
    compare = f.need(*_COMPARE, *_UNSIGNED)
    join = f.take(*_JOIN)
    kind = f.type()
    to, a, b, *c = f.operands(4 if join else 3)
    bits = BITS[kind]
    if compare in _UNSIGNED:
        compare, name = _UNSIGNED[compare], f"u{bits}"
    else:
        name = f"u{bits}" if kind[0] == "b" and kind != "bf16" else kind
    handler = f"{f.base}.{compare}.{name}"
    predicate, negated = f.predicate(c[0]) if c else (None, False)
    flags |= (_JOIN[join] if join else 0) | (_NOT_C if negated else 0)
    sources = (f.source(a, kind), f.source(b, kind), predicate)
    if f.base == "setp":
        first, second = f.pair(to)
        return Emitted(handler, (f.result(first, 1), f.result(second, 1)), sources, flags)
    result = f.need(*_YES)
    if BITS[result] == 16 and kind not in ("f16", "bf16"):
        raise f.error(f"results of type {result} are only known for f16 and bf16")
    handler = handler.replace("set.", "set16.") if BITS[result] == 16 else handler
    return Emitted(handler, (f.result(to, BITS[result]),), (None, *sources), flags, _YES[result])


@form("slct")
def _select_by_sign(f: Form) -> Emitted:
    flags = f.flush()
    sign, kind = f.type("s32", "f32"), f.type("b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64")
    to, a, b, c = f.operands(4)
    sources = (f.source(a, kind), f.source(b, kind), f.source(c, sign))
    return Emitted(f"slct.b{BITS[kind]}.{sign}", (f.result(to, BITS[kind]),), sources, flags)


@form("mov")
def _move(f: Form) -> Emitted:
    kind = f.type()
    bits = BITS[kind]
    to, a = f.operands(2)
    if isinstance(to, Vector) or isinstance(a, Vector):
        return _packed(f, to, a, bits)
    if isinstance(a, Special) and a.name.startswith(("%clock", "%globaltimer")):
        return Emitted(f"clock.b{bits}", (f.result(to, bits),), ())
    if kind == "pred":
        return _all(f, "mov.pred", (to, 1), (f.source(a, kind),))
    return _all(f, f"mov.b{bits}", (to, bits), (f.source(a, kind),))


def _packed(f: Form, to: Operand | None, a: Operand | None, bits: int) -> Emitted:
    vector = to if isinstance(to, Vector) else a
    assert isinstance(vector, Vector)
    count = len(vector.items)
    part = bits // count
    if part not in (16, 32) or part * count != bits:
        raise f.error(f"{count} parts of {bits} bits are not known")
    if isinstance(to, Vector):
        results = tuple(f.result(item, part) for item in to.items)
        return Emitted(f"unpack.b{bits}.b{part}", results, (f.source(a, f"b{bits}"),))
    sources = tuple(f.source(item, f"b{part}") for item in vector.items)
    return Emitted(f"pack.b{bits}.b{part}", (f.result(to, bits),), sources)
