"""Reads the body of a kernel. Device functions that it calls take the places of their calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from ortisan.emulator.parse import read_integer, read_variables
from ortisan.emulator.scan import Scanner, Statement, split
from ortisan.emulator.syntax import (
    BITS,
    Address,
    Body,
    Function,
    Guard,
    Instruction,
    Label,
    Module,
    Not,
    Number,
    Operand,
    Pair,
    PtxError,
    Register,
    Special,
    Symbol,
    Variable,
    Vector,
)

_DEPTH = 64
_REGISTERS = re.compile(r"\.reg\s*((?:\.\w+\s+)+)(.*)", re.DOTALL)
_GUARD = re.compile(r"@(!?)\s*([\w$%]+)\s+(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_$%][\w$]*(?:\.[xyzw])?")
_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})")
_CALL = re.compile(r"call(?:\.uni)?\s+(?:\(([^)]*)\)\s*,\s*)?([\w$%]+)\s*(?:,\s*\(([^)]*)\))?", re.DOTALL)
_SPECIALS = frozenset({
    "tid", "ntid", "ctaid", "nctaid", "laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid", "clock", "clock64",
    "globaltimer", "dynamic_smem_size", "total_smem_size", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt",
    "lanemask_ge",
})  # fmt: skip


@dataclass
class _Scope:
    outer: _Scope | None = None
    names: dict[str, Register | Variable] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Prefix of numbered registers -> how many there are, and their bits."""

    def find(self, name: str) -> Register | Variable | None:
        scope: _Scope | None = self
        numbered = re.fullmatch(r"(.*?)(\d+)", name)
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            if numbered and numbered[1] in scope.ranges and int(numbered[2]) < scope.ranges[numbered[1]][0]:
                made = scope.names[name] = Register(name, scope.ranges[numbered[1]][1])
                return made
            scope = scope.outer
        return None


class BodyReader:
    def __init__(self, module: Module) -> None:
        self.module = module
        self._scanner = Scanner(module.text)
        self._made = count()
        self._body = Body()

    def read(self, kernel: Function) -> Body:
        self._body = Body()
        self._function(kernel, _Scope(), ())
        return self._body

    def _function(self, function: Function, scope: _Scope, callers: tuple[str, ...]) -> None:
        for variable in () if callers else function.parameters:
            scope.names[variable.name] = variable
        suffix = f"#{next(self._made)}" if callers else ""
        inner = _Inline(self, function, scope, suffix, callers)
        depth = 0
        for statement in self._scanner.statements(function.begin):
            depth += {"{": 1, "}": -1}.get(statement.kind, 0)
            inner.take(statement)
            if depth == 0:
                break
        self._body.instructions.append(Instruction(":", (Label(_end(suffix)),), None, function.line))
        if not callers:
            self._body.instructions.append(Instruction("exit", (), None, function.line))

    def call(self, text: str, scope: _Scope, line: int, callers: tuple[str, ...]) -> None:
        """Reads the called function in the place of a call, with the caller's variables as its parameters."""
        found = _CALL.match(text)
        function = self.module.functions.get(found[2]) if found else None
        if found is None or function is None:
            raise PtxError(line, f"'{text[:60]}': only calls of functions by their name are known")
        if function.name == "__assertfail":
            self._body.instructions.append(Instruction("assert", (), None, line))
            return
        if function.begin < 0:
            raise PtxError(line, f"the function {function.name}, which is called here, has no body")
        if function.name in callers or len(callers) > _DEPTH:
            raise PtxError(line, f"the function {function.name} calls itself")
        called = _Scope()
        for formal, actual in zip(
            (*function.results, *function.parameters), (*split(found[1] or ""), *split(found[3] or "")), strict=True
        ):
            variable = scope.find(actual)
            if not isinstance(variable, Variable):
                raise PtxError(line, f"'{actual}' is passed to a function, which takes .param variables only")
            called.names[formal.name] = variable
        self._function(function, called, (*callers, function.name))


def _end(suffix: str) -> str:
    """The label behind a function, which no PTX can name."""
    return f"<end>{suffix}"


class _Inline:
    """Statements of one function, each time that it is called."""

    def __init__(
        self, reader: BodyReader, function: Function, scope: _Scope, suffix: str, callers: tuple[str, ...]
    ) -> None:
        self._reader, self._function, self._scope = reader, function, scope
        self._suffix, self._callers = suffix, callers
        self._source = ""
        self._scopes = 0
        self._table: str | None = None

    def take(self, statement: Statement) -> None:
        body = self._reader._body
        if statement.kind == "{":
            self._scope = _Scope(self._scope)
        elif statement.kind == "}":
            self._scope = self._scope.outer or self._scope
        elif statement.kind == "label":
            self._table = statement.text
            body.instructions.append(Instruction(":", (self._label(statement.text),), None, statement.line))
        elif statement.kind == "directive":
            words = statement.text.split()
            if words[0] == ".loc":
                file = self._reader.module.files.get(words[1], words[1])
                self._source = f"{file.rpartition('/')[2]}:{words[2]}"
        elif statement.text:
            self._statement(statement.text, statement.line)

    def _label(self, name: str) -> Label:
        return Label(name + self._suffix)

    def _statement(self, text: str, line: int) -> None:
        body = self._reader._body
        if text.startswith((".pragma", ".callprototype")):
            return
        if text.startswith(".branchtargets"):
            labels = tuple(self._label(name).name for name in split(text.removeprefix(".branchtargets")))
            body.tables[f"{self._table}{self._suffix}"] = labels
            return
        if found := _REGISTERS.match(text):
            self._registers(found[1].split(), found[2], line)
            return
        if text.startswith("."):
            variables = read_variables(text, line)
            if variables is None:
                raise PtxError(line, f"'{text[:60]}' is not known")
            for variable in variables:
                self._scope.names[variable.name] = variable
                if variable.space in ("shared", "local", "param"):
                    variable.space = "local" if variable.space == "param" else variable.space
                    body.variables.append(variable)
                else:
                    self._reader.module.variables[f"{self._function.name}.{variable.name}"] = variable
                    variable.name = f"{self._function.name}.{variable.name}"
            return
        self._instruction(text, line)

    def _registers(self, types: list[str], names: str, line: int) -> None:
        bits = BITS.get(types[-1][1:])
        if bits is None or len(types) > 1:
            raise PtxError(line, f"registers of type {' '.join(types)} are not known")
        for name in split(names):
            if found := re.fullmatch(r"([\w$%]+)<(\d+)>", name):
                self._scope.ranges[found[1]] = (int(found[2]), bits)
            else:
                self._scope.names[name] = Register(name, bits)

    def _instruction(self, text: str, line: int) -> None:
        guard = None
        if found := _GUARD.match(text):
            register = self._scope.find(found[2])
            if not isinstance(register, Register):
                raise PtxError(line, f"there is no predicate '{found[2]}'")
            guard, text = Guard(register, found[1] == "!"), found[3]
        name, _, rest = re.sub(r"\s+", " ", text).partition(" ")
        if name in ("call", "call.uni"):
            if guard is not None:
                raise PtxError(line, "a call behind a predicate is not known")
            self._reader.call(text, self._scope, line, (*self._callers, self._function.name)[-_DEPTH - 1 :])
            return
        operands = tuple(self._operand(part, line) for part in split(rest.strip()))
        if name in ("ret", "ret.uni") and self._callers:
            name, operands = "bra", (Label(_end(self._suffix)),)
        self._reader._body.instructions.append(Instruction(name.strip(), operands, guard, line, self._source))

    def _operand(self, text: str, line: int) -> Operand | None:
        if text == "_":
            return None
        if text[0] == "{":
            return Vector(tuple(self._operand(part, line) for part in split(text[1:-1])))
        if text[0] == "[":
            return self._address(text[1:-1].strip(), line)
        if text[0] == "!":
            register = self._operand(text[1:].strip(), line)
            if not isinstance(register, Register):
                raise PtxError(line, f"'{text}' is no predicate")
            return Not(register)
        if "|" in text:
            first, _, second = text.partition("|")
            return Pair(self._operand(first.strip(), line), self._operand(second.strip(), line))
        if found := _FLOAT.fullmatch(text):
            return Number(int(found[1] or found[2], 16), "f32" if found[1] else "f64")
        if _NAME.fullmatch(text):
            return self._name(text, line)
        if found := re.fullmatch(r"([A-Za-z_$%][\w$]*)\s*([+-].*)", text):
            symbol = self._name(found[1], line)
            if isinstance(symbol, Symbol):
                return Symbol(symbol.variable, symbol.offset + read_integer(found[2], line))
        if re.fullmatch(r"[-+]?\d+\.\d*(?:[eE][-+]?\d+)?", text):
            raise PtxError(line, f"'{text}': only floats as bits (0f3F800000) are known")
        return Number(read_integer(text, line))

    def _address(self, text: str, line: int) -> Address:
        if "," in text:
            raise PtxError(line, f"the address [{text}] is not known")
        found = re.fullmatch(r"([\w$%.]+)\s*(?:\+\s*(-?\s*\w+)|(-\s*\w+))?", text)
        if found is None:
            raise PtxError(line, f"the address [{text}] is not known")
        offset = read_integer((found[2] or found[3] or "0").replace(" ", ""), line)
        if found[1][0].isdigit():
            return Address(Number(read_integer(found[1], line)), offset)
        return Address(self._name(found[1], line), offset)

    def _name(self, name: str, line: int) -> Operand:
        found = self._scope.find(name)
        if isinstance(found, Register):
            return found
        found = found or self._variables().get(name)
        if found is not None:
            return Symbol(found)
        if name[0] == "%" and name[1:].partition(".")[0] in _SPECIALS:
            return Special(name)
        if name == "WARP_SZ":
            return Number(32)
        if name[0] == "%":
            raise PtxError(line, f"the register {name} is not known")
        return self._label(name)

    def _variables(self) -> Mapping[str, Variable]:
        return self._reader.module.variables
