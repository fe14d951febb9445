"""mma and ldmatrix."""

from __future__ import annotations

from ortisan.emulator.forms.form import Emitted, Form, form

_REGISTERS = {
    ("m16n8k4", "tf32"): 1, ("m16n8k8", "tf32"): 2, ("m16n8k8", "bf16"): 1, ("m16n8k16", "bf16"): 2,
    ("m16n8k8", "f16"): 1, ("m16n8k16", "f16"): 2,
}  # fmt: skip
"""Shape and type -> registers of B; A has twice as many."""


@form("mma")
def _multiply(f: Form) -> Emitted:
    f.need("sync")
    f.need("aligned")
    shape = next((word for word in f.words if word.startswith("m") and "n" in word), "")
    f.take(shape)
    f.need("row")
    f.need("col")
    types = f.words[:]
    f.words = []
    if len(types) != 4 or types[1] != types[2] or types[0] != types[3] or types[0] not in ("f32", "f16"):
        raise f.error("that form is not known")
    sums, kind = types[0], types[1]
    count = _REGISTERS.get((shape, kind))
    if count is None or (sums == "f16" and kind != "f16"):
        raise f.error("that form is not known")
    d, a, b, c = f.operands(4)
    many = 4 if sums == "f32" else 2
    results = tuple(f.result(item, 32) for item in f.vector(d, many))
    parts = (*f.vector(a, 2 * count), *f.vector(b, count), *f.vector(c, many))
    if None in results:
        raise f.error("a result is left out")
    return Emitted(f"mma.{shape}.{sums}.{kind}", results, tuple(f.source(part, "b32") for part in parts))


@form("ldmatrix")
def _load(f: Form) -> Emitted:
    f.need("sync")
    f.need("aligned")
    f.need("m8n8")
    count, transposed = f.need("x1", "x2", "x4"), f.take("trans")
    f.take("shared")
    f.need("b16")
    to, at = f.operands(2)
    place, offset, narrow = f.address(at)
    results = tuple(f.result(item, 32) for item in f.vector(to, int(count[1:])))
    if None in results:
        raise f.error("a result is left out")
    return Emitted(f"ldmatrix.{count}{'.trans' if transposed else ''}", results, (place,), narrow, offset)
