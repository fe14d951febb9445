"""An instruction taken apart: modifiers are taken by name, and one that nobody takes is an error."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ortisan.emulator.syntax import (
    BITS,
    Address,
    Instruction,
    Label,
    Not,
    Number,
    Operand,
    Pair,
    PtxError,
    Register,
    Special,
    Symbol,
    Vector,
)

FLUSH, SATURATE, RELU, NAN, FIRST = 1, 2, 16, 32, 64
ROUNDING = {"rn": 0, "rz": 4, "rm": 8, "rp": 12}


@dataclass(frozen=True)
class Constant:
    """A value that all lanes share: a number, the name of a fact of the launch ("%ctaid.x"), or "@variable"."""

    bytes: int
    value: int | str


@dataclass(frozen=True)
class Raw:
    """A number among the operands."""

    value: int


Place = Register | Special | Constant | Raw | None
"""What an operand of a handler is; None where there is none."""


@dataclass(frozen=True)
class Emitted:
    handler: str
    results: tuple[Place, ...]
    """The operands that are written; they come first."""
    sources: tuple[Place, ...]
    flags: int = 0
    immediate: int = 0
    labels: tuple[str, ...] = ()
    ends: bool = False
    """Nothing falls through to the next instruction."""


class Form:
    """The words and operands of one instruction."""

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self.base, *self.words = instruction.name.split(".")
        self.words = _joined(self.words)

    def error(self, what: str) -> PtxError:
        return PtxError(self.instruction.line, f"{self.instruction.name}: {what}")

    def take(self, *names: str) -> str | None:
        """The first of these modifiers that is there; it is then used up."""
        for word in self.words:
            if word in names:
                self.words.remove(word)
                return word
        return None

    def need(self, *names: str) -> str:
        found = self.take(*names)
        if found is None:
            raise self.error(f"none of .{', .'.join(names)} is there; that form is not known")
        return found

    def type(self, *types: str) -> str:
        """The last modifier that is one of these types, or of all."""
        for word in reversed(self.words):
            if word in (types or BITS):
                del self.words[len(self.words) - 1 - self.words[::-1].index(word)]
                return word
        raise self.error("no type that is known for it")

    def flag(self, name: str, value: int) -> int:
        return value if self.take(name) else 0

    def flush(self) -> int:
        return self.flag("ftz", FLUSH)

    def done(self) -> None:
        if self.words:
            raise self.error(f"the modifier .{self.words[0]} is not known")

    def operands(self, *counts: int) -> list[Operand | None]:
        found = list(self.instruction.operands)
        if len(found) not in counts:
            raise self.error(f"{len(found)} operands")
        return found

    def result(self, operand: Operand | None, bits: int) -> Register | None:
        if operand is None:
            return None
        if not isinstance(operand, Register):
            raise self.error("the result is no register")
        if operand.bits != bits:
            raise self.error(f"{operand.name} has {operand.bits} bits, not {bits}")
        return operand

    def source(self, operand: Operand | None, kind: str) -> Place:
        """An operand of a type: a register of its size, or a constant."""
        bits = BITS[kind]
        if isinstance(operand, Register):
            return self.result(operand, bits)
        if isinstance(operand, Number):
            return Constant(max(bits // 8, 1), _encode(operand, kind, self))
        if isinstance(operand, Symbol):
            return self.symbol(operand, bits)
        if isinstance(operand, Special):
            return self.special(operand, bits)
        raise self.error("an operand is not of a kind that is known for it")

    def special(self, operand: Special, bits: int) -> Place:
        if operand.name.startswith(("%tid", "%lane", "%warpid")):
            if bits != 32:
                raise self.error(f"{operand.name} has 32 bits")
            return operand
        if operand.name.startswith(("%clock", "%globaltimer")):
            raise self.error(f"{operand.name} can only be moved to a register")
        return Constant(bits // 8, operand.name)

    def symbol(self, operand: Symbol, bits: int) -> Place:
        """The address of a variable, in its own space."""
        variable = operand.variable
        if variable.space in ("global", "const"):
            if operand.offset or bits != 64:
                raise self.error(f"the address of {variable.name} with an offset, or in {bits} bits")
            return Constant(8, f"@{variable.name}")
        return Constant(bits // 8, variable.offset + operand.offset)

    def predicate(self, operand: Operand | None) -> tuple[Place, bool]:
        """A predicate and whether it is negated."""
        if isinstance(operand, Not):
            return operand.register, True
        if isinstance(operand, Number):
            return Constant(1, 0xFFFFFFFF if operand.value else 0), False
        return self.result(operand, 1), False

    def pair(self, operand: Operand | None) -> tuple[Operand | None, Operand | None]:
        return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)

    def vector(self, operand: Operand | None, count: int) -> tuple[Operand | None, ...]:
        items = operand.items if isinstance(operand, Vector) else (operand,)
        if len(items) != count:
            raise self.error(f"{len(items)} elements, not {count}")
        return items

    def address(self, operand: Operand | None) -> tuple[Place, int, int]:
        """Where an access begins: the base, its offset, and the flag of bases of 32 bits."""
        if not isinstance(operand, Address):
            raise self.error("the address is in no brackets")
        if isinstance(operand.base, Register):
            if operand.base.bits not in (32, 64):
                raise self.error("the address is no register of 32 or 64 bits")
            return operand.base, operand.offset, (1 << 21) if operand.base.bits == 32 else 0
        if isinstance(operand.base, Symbol):
            offset = operand.offset + operand.base.offset
            return self.symbol(Symbol(operand.base.variable), 64), offset, 0
        if isinstance(operand.base, Number):
            return Constant(8, operand.base.value), operand.offset, 0
        raise self.error("the address is not known")

    def label(self, operand: Operand | None) -> str:
        if not isinstance(operand, Label):
            raise self.error("the target is no label")
        return operand.name


def _joined(words: list[str]) -> list[str]:
    """Modifiers, with "::" inside of them kept and "shared::cta" as "shared"."""
    return ["shared" if word == "shared::cta" else "param" if word.startswith("param::") else word for word in words]


def _encode(number: Number, kind: str, form: Form) -> int:
    bits = BITS[kind]
    if kind == "pred":
        return 0xFFFFFFFF if number.value else 0
    if number.kind == "int":
        if kind in ("f32", "f64"):
            return _float_bits(float(number.value), kind)
        return number.value & ((1 << bits) - 1)
    if (number.kind == "f32") == (bits == 32):
        return number.value
    if bits not in (32, 64):
        raise form.error("a float literal for a type of other size")
    value = struct.unpack("<f" if number.kind == "f32" else "<d", number.value.to_bytes(bits // 8 ^ 12, "little"))[0]
    return _float_bits(value, "f32" if bits == 32 else "f64")


def _float_bits(value: float, kind: str) -> int:
    return int.from_bytes(struct.pack("<f" if kind == "f32" else "<d", value), "little")


Lower = Callable[[Form], Emitted]
FORMS: dict[str, Lower] = {}
"""The first word of an instruction -> what makes a handler's call of it."""


def form(*names: str) -> Callable[[Lower], Lower]:
    def add(function: Lower) -> Lower:
        for name in names:
            FORMS[name] = function
        return function

    return add


def lower(instruction: Instruction) -> Emitted:
    """A `PtxError` names what is not known, and its line."""
    found = Form(instruction)
    make = FORMS.get(found.base)
    if make is None:
        raise PtxError(instruction.line, f"the instruction {instruction.name} is not known")
    emitted = make(found)
    found.done()
    return emitted


def registers(places: Iterable[Place]) -> list[Register]:
    return [place for place in places if isinstance(place, Register)]
