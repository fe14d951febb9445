"""Reads PTX: modules, functions, variables. Bodies of kernels are read by body.py."""

from __future__ import annotations

import re
import struct

from ortisan.emulator.scan import Scanner, Statement, split, without_comments
from ortisan.emulator.syntax import BITS, Function, Module, PtxError, Variable

_SPACES = ("global", "const", "shared", "local", "param", "tex")
_FUNCTION = re.compile(r"\.(entry|func)\b\s*(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?(.*)", re.DOTALL)
_VARIABLE = re.compile(r"([\w$%]+)\s*((?:\[\s*\d*\s*\])*)\s*(?:=\s*(.*))?$", re.DOTALL)


def parse(text: str) -> Module:
    """The module; a `PtxError` where it is not understood."""
    text = without_comments(text)
    scanner = Scanner(text)
    module = Module(text, "", "", {}, {}, {})
    at = 0
    while True:
        statement = next(scanner.statements(at), None)
        if statement is None:
            break
        at = statement.end
        if statement.kind == "directive":
            _directive(module, statement)
        elif statement.kind == "header":
            function = _function(statement)
            if function.begin >= 0:
                at = scanner.close(function.begin, statement.line) + 1
            if function.begin >= 0 or function.name not in module.functions:
                module.functions[function.name] = function
        elif statement.kind == "" and (variables := read_variables(statement.text, statement.line)) is not None:
            for variable in variables:
                if not (variable.external and variable.name in module.variables):
                    module.variables[variable.name] = variable
        elif statement.kind == "" and not statement.text.startswith((".pragma", ".alias")):
            raise PtxError(statement.line, f"'{statement.text[:60]}' is not known outside of functions")
    if not module.version:
        raise PtxError(1, "there is no .version: this is no PTX")
    return module


def _directive(module: Module, statement: Statement) -> None:
    words = statement.text.split(None, 2)
    if words[0] == ".version":
        module.version = words[1]
    elif words[0] == ".target":
        module.target = words[1].rstrip(",")
    elif words[0] == ".address_size" and words[1] != "64":
        raise PtxError(statement.line, f"addresses of {words[1]} bits; only those of 64 are known")
    elif words[0] == ".file":
        module.files[words[1]] = re.sub(r'^"|"[^"]*$', "", words[2])


def _function(statement: Statement) -> Function:
    """What a header declares. Its body begins where the statement ends."""
    declared = statement.text.endswith(";")
    found = _FUNCTION.search(statement.text.rstrip(";"))
    if found is None:
        raise PtxError(statement.line, f"'{statement.text[:60]}' is no function")
    results, parameters = (_parameters(found[k] or "", statement.line) for k in (2, 4))
    threads = re.search(r"\.(?:maxntid|reqntid)\s+([\d,\s]+)", found[5])
    size = 1
    for extent in threads[1].split(",") if threads else ("1024",):
        size *= int(extent)
    begin = -1 if declared else statement.end
    return Function(found[3], found[1] == "entry", results, parameters, begin, statement.line, size)


def _parameters(text: str, line: int) -> tuple[Variable, ...]:
    found: list[Variable] = []
    offset = 0
    for part in split(text):
        variables = read_variables(
            re.sub(r"\.ptr\b(?:\s*\.(?:global|shared|const|local))?(?:\s*\.align\s+\d+)?", "", part), line
        )
        if not variables or variables[0].space != "param":
            raise PtxError(line, f"'{part}' is no parameter")
        (variable,) = variables
        offset = -(-offset // variable.align) * variable.align
        variable.offset = offset
        offset += variable.size
        found.append(variable)
    return tuple(found)


def read_variables(text: str, line: int) -> list[Variable] | None:
    """The variables of a declaration; None when it is none."""
    words = re.match(r"((?:\.[\w:]+(?:\s+\d+(?=\s))?\s*)+)(.*)", text, re.DOTALL)
    if words is None:
        return None
    directives = re.findall(r"\.([\w:]+)(?:\s+(\d+))?", words[1])
    names = [name for name, _ in directives]
    space = next((name.partition("::")[0] for name in names if name.partition("::")[0] in _SPACES), None)
    kind = next((name for name in names if name in BITS), None)
    if space is None or kind is None:
        return None
    count = next((int(name[1:]) for name in names if name in ("v2", "v4")), 1)
    size = BITS[kind] // 8 * count
    align = next((int(number) for name, number in directives if name == "align"), size)
    external = "extern" in names
    return [_variable(part, line, kind, size, (space, align, external)) for part in split(words[2])]


def _variable(text: str, line: int, kind: str, size: int, rest: tuple[str, int, bool]) -> Variable:
    space, align, external = rest
    found = _VARIABLE.match(text)
    if found is None:
        raise PtxError(line, f"'{text[:60]}' is no variable")
    values = _initial(found[3], kind, line) if found[3] else None
    elements, unsized = 1, False
    for extent in re.findall(r"\[\s*(\d*)\s*\]", found[2]):
        unsized = unsized or not extent
        elements *= int(extent or 0)
    data, relocations = values or (None, ())
    total = size * elements if not unsized or data is None else len(data)
    if data is not None:
        data = data[:total].ljust(total, b"\0")
    return Variable(found[1], space, align, total, data, relocations, external or (unsized and values is None))


def _initial(text: str, kind: str, line: int) -> tuple[bytes, tuple[tuple[int, str, int], ...]]:
    """The bytes of an initialiser, and the addresses in it."""
    data, relocations = bytearray(), []
    for part in split(re.sub(r"[{}]", " ", text)):
        if part.startswith(("generic", "mask")) or re.match(r"[A-Za-z_$]", part):
            found = re.match(r"(?:generic\(\s*)?([\w$]+)\s*\)?\s*(?:\+\s*(\d+))?$", part)
            if found is None or BITS[kind] != 64:
                raise PtxError(line, f"'{part}' is no initial value that is known here")
            relocations.append((len(data), found[1], int(found[2] or 0)))
            data += bytes(8)
        else:
            data += _bytes_of(part, kind, line)
    return bytes(data), tuple(relocations)


def _bytes_of(text: str, kind: str, line: int) -> bytes:
    size = BITS[kind] // 8
    if found := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})", text):
        single, double = (bytes.fromhex(part)[::-1] if part else b"" for part in found.groups())
        if kind == "f64" and single:
            return struct.pack("<d", struct.unpack("<f", single)[0])
        if kind == "f32" and double:
            return struct.pack("<f", struct.unpack("<d", double)[0])
        return single or double
    if kind in ("f32", "f64") and re.fullmatch(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?", text):
        return struct.pack("<f" if kind == "f32" else "<d", float(text))
    return (read_integer(text, line) & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def read_integer(text: str, line: int) -> int:
    digits = text.strip().rstrip("U").lower()
    negative, digits = digits.startswith("-"), digits.lstrip("+-")
    try:
        octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in "xb"
        value = int(digits, 8) if octal else int(digits, 0)
    except ValueError:
        raise PtxError(line, f"'{text}' is no number") from None
    return -value if negative else value
