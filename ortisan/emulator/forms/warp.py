"""What the lanes of a warp do together."""

from __future__ import annotations

from ortisan.emulator.forms.form import FIRST, Emitted, Form, form

_WAYS = {"up": FIRST, "down": FIRST << 1, "bfly": FIRST << 2, "idx": FIRST << 3}
_VOTES = {"all": FIRST, "any": FIRST << 1, "uni": FIRST << 2}
_BALLOT = FIRST << 3


@form("shfl")
def _shuffle(f: Form) -> Emitted:
    f.need("sync")
    flags = _WAYS[f.need(*_WAYS)]
    f.type("b32")
    to, *sources = f.operands(5)
    value, valid = f.pair(to)
    places = tuple(f.source(source, "b32") for source in sources)
    return Emitted("shfl", (f.result(value, 32), f.result(valid, 1)), places, flags)


@form("vote")
def _vote(f: Form) -> Emitted:
    f.need("sync")
    how = f.need(*_VOTES, "ballot")
    f.type("pred" if how != "ballot" else "b32")
    to, a, mask = f.operands(3)
    predicate, negated = f.predicate(a)
    result = f.result(to, 32 if how == "ballot" else 1)
    return Emitted("vote", (result,), (predicate, f.source(mask, "b32")), _VOTES.get(how, _BALLOT), int(negated))


@form("match")
def _match(f: Form) -> Emitted:
    how, kind = f.need("any", "all"), f.type("b32", "b64")
    f.need("sync")
    to, a, mask = f.operands(3)
    lanes, same = f.pair(to)
    results = (f.result(lanes, 32), f.result(same, 1))
    return Emitted(f"match.{how}.{kind}", results, (f.source(a, kind), f.source(mask, "b32")))


@form("redux")
def _reduce(f: Form) -> Emitted:
    f.need("sync")
    how, kind = f.need("add", "min", "max", "and", "or", "xor"), f.type("u32", "s32", "b32")
    to, a, mask = f.operands(3)
    handler = f"redux.{how}.{kind}" if how in ("min", "max") else f"redux.{how}"
    return Emitted(handler, (f.result(to, 32),), (f.source(a, kind), f.source(mask, "b32")))


@form("activemask")
def _active(f: Form) -> Emitted:
    f.type("b32")
    (to,) = f.operands(1)
    return Emitted("activemask", (f.result(to, 32),), ())
