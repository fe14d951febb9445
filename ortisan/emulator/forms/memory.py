"""Loads, stores, atomics, copies to shared memory, fences and hints."""

from __future__ import annotations

from math import log2

from ortisan.emulator.forms.form import Emitted, Form, Place, Raw, form
from ortisan.emulator.syntax import BITS, Address, Number, Operand, Register, Symbol

_SPACES = ("global", "shared", "local", "param", "const")
_ORDERS = ("relaxed", "acquire", "release", "acq_rel", "volatile", "weak", "mmio")
_SCOPES = ("cta", "gpu", "sys", "cluster")
_HINTS = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc")
_OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
_GENERIC, _SHARED = 1 << 22, 1 << 23


def _hints(f: Form) -> None:
    """Cache hints change no value."""
    f.take(*_HINTS)
    f.words = [word for word in f.words if not word.startswith(("L1::", "L2::"))]


def _shape(f: Form, kind: str, count: int, bits: int) -> int:
    if bits < BITS[kind] or bits not in (16, 32, 64):
        raise f.error(f"registers of {bits} bits for {kind}")
    sign = kind[0] == "s"
    return int(log2(BITS[kind] // 8)) << 8 | count << 12 | int(log2(bits // 8)) << 16 | int(sign) << 20


def _space_of(f: Form, operand: Operand | None, space: str | None) -> str:
    """The space of an access; parameters of calls are in local memory, those of kernels in a window of their own."""
    if isinstance(operand, Address) and isinstance(operand.base, Symbol) and space == "param":
        return operand.base.variable.space
    if space == "const":
        return "global"
    return space or "generic"


@form("ld", "ldu", "st")
def _access(f: Form) -> Emitted:
    store = f.base == "st"
    order, space = f.take(*_ORDERS), f.take(*_SPACES)
    f.take(*_SCOPES)
    _hints(f)
    vector = f.take("v2", "v4", "v8")
    kind, count = f.type(), int(vector[1:]) if vector else 1
    where, value = (0, 1) if store else (1, 0)
    operands = f.operands(2)
    items = f.vector(operands[value], count)
    place, offset, narrow = f.address(operands[where])
    space = _space_of(f, operands[where], space)
    if store and space == "param":
        raise f.error("parameters of the kernel can't be stored to")
    sizes = {item.bits for item in items if isinstance(item, Register)} or {max(BITS[kind], 16)}
    if len(sizes) != 1:
        raise f.error("registers of different sizes")
    (bits,) = sizes
    flags = _shape(f, kind, count, bits) | narrow
    handler = f"{'st' if store else 'ld'}.{space}"
    if order in ("acquire", "release") and space in ("global", "generic"):
        handler = f"{'st' if store else 'ld'}.{order}"
    if store:
        return Emitted(handler, (), (*(f.source(item, f"b{bits}") for item in items), place), flags, offset)
    return Emitted(handler, tuple(f.result(item, bits) for item in items), (place,), flags, offset)


@form("atom", "red")
def _atomic(f: Form) -> Emitted:
    f.take(*_ORDERS)
    space = f.take("global", "shared")
    f.take(*_SCOPES)
    f.take("noftz")
    _hints(f)
    operation = f.need(*_OPERATIONS)
    kind = f.type()
    found = f.operands(*((2, 3) if f.base == "red" else (3, 4)))
    to = found.pop(0) if f.base == "atom" else None
    place, offset, narrow = f.address(found[0])
    bits = BITS[kind]
    floating = kind[0] == "f" or kind.startswith("bf")
    ordered = operation in ("min", "max", "inc", "dec")
    name = kind if floating or ordered else f"b{bits}"
    sources = (place, f.source(found[1], kind), f.source(found[2], kind) if len(found) > 2 else None)
    flags = narrow | (_GENERIC if space is None else _SHARED if space == "shared" else 0)
    return Emitted(f"atom.{operation}.{name}", (f.result(to, bits),), sources, flags, offset)


@form("cp")
def _copy(f: Form) -> Emitted:
    f.need("async")
    if f.take("commit_group"):
        f.operands(0)
        return Emitted("cp.async.commit", (), ())
    if f.take("wait_all"):
        f.operands(0)
        return Emitted("cp.async.wait_all", (), ())
    if f.take("wait_group"):
        (kept,) = f.operands(1)
        if not isinstance(kept, Number):
            raise f.error("the number of groups is no number")
        return Emitted("cp.async.wait", (), (), 0, kept.value)
    f.need("ca", "cg")
    f.need("shared")
    f.need("global")
    _hints(f)
    to, source, size, *more = f.operands(3, 4)
    if not isinstance(size, Number) or size.value not in (4, 8, 16):
        raise f.error("only pieces of 4, 8 and 16 bytes are known")
    taken: Place = None
    ignored: Place = None
    if more:
        if isinstance(more[0], Register) and more[0].bits == 1:
            ignored = more[0]
        else:
            taken = f.source(more[0], "u32")
    place, to_offset, narrow = f.address(to)
    origin, offset, short = f.address(source)
    if short:
        raise f.error("the global address has 32 bits")
    sources = (place, origin, taken, ignored, Raw(size.value), Raw(to_offset & 0xFFFFFFFF))
    return Emitted("cp.async", (), sources, narrow, offset)


@form("membar", "fence")
def _fence(f: Form) -> Emitted:
    f.take("sc", "acq_rel", "acquire", "release")
    f.take("cta", "gl", "sys", "gpu", "cluster")
    f.operands(0)
    return Emitted("fence", (), ())


@form("prefetch", "prefetchu")
def _prefetch(f: Form) -> Emitted:
    f.words = []
    return Emitted("nop", (), ())


@form("nanosleep", "pragma", "griddepcontrol")
def _nothing(f: Form) -> Emitted:
    f.words = []
    return Emitted("nop", (), ())
