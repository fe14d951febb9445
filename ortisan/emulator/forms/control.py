"""Branches, ends and barriers."""

from __future__ import annotations

from ortisan.emulator.forms.form import FIRST, Constant, Emitted, Form, Place, form

_VOTES = {"popc": FIRST, "and": FIRST << 1, "or": FIRST << 2}
_ARRIVE, _ALIGNED = FIRST << 4, FIRST << 5


@form("bra")
def _branch(f: Form) -> Emitted:
    f.take("uni")
    (to,) = f.operands(1)
    guard, label = f.instruction.guard, f.label(to)
    if guard is None:
        return Emitted("bra", (), (), labels=(label,), ends=True)
    return Emitted("bra.if", (), (guard.register,), 0, int(guard.negated), labels=(label,))


@form("brx")
def _branch_by_index(f: Form) -> Emitted:
    f.need("idx")
    f.take("uni")
    index, table = f.operands(2)
    if f.instruction.guard is not None:
        raise f.error("behind a predicate it is not known")
    return Emitted("brx.idx", (), (f.source(index, "u32"),), labels=(f.label(table),), ends=True)


@form("exit", "ret")
def _leave(f: Form) -> Emitted:
    f.take("uni")
    f.operands(0)
    return Emitted("exit", (), (), ends=f.instruction.guard is None)


@form("trap", "brkpt", "assert")
def _trap(f: Form) -> Emitted:
    f.operands(0)
    return Emitted("assert" if f.base == "assert" else "trap", (), ())


@form("bar", "barrier")
def _barrier(f: Form) -> Emitted:
    if f.base == "bar" and f.take("warp"):
        f.need("sync")
        (mask,) = f.operands(1)
        return Emitted("bar.warp", (), (f.source(mask, "b32"),))
    f.take("cta")
    how = f.need("sync", "arrive", "red")
    flags = _ALIGNED if f.base == "bar" or f.take("aligned") else 0
    f.take("aligned")
    results: tuple[Place, ...] = (None,)
    vote: Place = None
    negated = False
    operands = f.operands(1, 2, 3, 4)
    if how == "red":
        joined = f.need(*_VOTES)
        flags |= _VOTES[joined]
        f.type("pred", "u32")
        results = (f.result(operands.pop(0), 32 if joined == "popc" else 1),)
        vote, negated = f.predicate(operands.pop())
    flags |= _ARRIVE if how == "arrive" else 0
    number = f.source(operands[0], "u32")
    threads = f.source(operands[1], "u32") if len(operands) > 1 else None
    return Emitted("barrier", results, (number or Constant(4, 0), threads, vote), flags, int(negated))
