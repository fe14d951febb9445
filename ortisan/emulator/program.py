"""PTX -> a program: the text that the machine reads (templates/emulator/program.cpp).

A line of an instruction is: i HANDLER GUARD FLAGS IMMEDIATE TARGET LINE USE RESULTS SOURCES TEXT PLACES...
USE says what becomes of values that were never written, RESULTS and SOURCES how many places are registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ortisan.emulator.body import BodyReader
from ortisan.emulator.forms import Emitted, lower
from ortisan.emulator.forms.form import Constant, Place, Raw
from ortisan.emulator.parse import parse
from ortisan.emulator.registers import LANES, Step, place_bytes, place_registers
from ortisan.emulator.syntax import Body, Function, Instruction, Label, Module, PtxError, Register, Special, Variable

_NONE = 0xFFFFFFFF
_OF_BLOCK = 1 << 31
_LINE = 64


def translate(ptx: str) -> str:
    """The program of all kernels of a PTX module; a `PtxError` names an instruction that is not known, and its line."""
    module = parse(ptx)
    reader = BodyReader(module)
    kernels = []
    for function in module.functions.values():
        if function.is_kernel and function.begin >= 0:
            kernels.append(_Kernel(module, function, reader.read(function)).lines())
    lines: list[str] = []
    for variable in module.variables.values():
        if variable.space in ("global", "const"):
            lines += _variable(variable)
    return "\n".join([*lines, *(line for kernel in kernels for line in kernel)]) + "\n"


def _variable(variable: Variable) -> list[str]:
    if variable.external:
        return []
    data = variable.data.hex() if variable.data and any(variable.data) else "-"
    lines = [f"variable {variable.name} {variable.space} {variable.align} {variable.size} {data}"]
    return lines + [f"relocation {variable.name} {at} {symbol} {add}" for at, symbol, add in variable.relocations]


_CHECKED = (
    "ld.", "st.global", "st.release", "atom.", "bra.if", "brx.idx", "barrier", "bar.warp", "cp.async", "ldmatrix",
)  # fmt: skip
_TOGETHER = ("shfl", "vote", "match.", "redux.")


def _use(handler: str) -> int:
    """Use of machine.h.

    0: a result has no value in lanes where a source has none. 1: all sources need one. 2: the last source, an address,
    needs one. 3: as 0, but of the source that is selected. 4: as 0, for all lanes together.
    5: elements of a matrix, by the rows and columns that make them.
    """
    if handler.startswith(_CHECKED):
        return 1
    if handler.startswith("st."):
        return 2
    if handler.startswith("selp."):
        return 3
    if handler.startswith("mma."):
        return 5
    return 4 if handler.startswith(_TOGETHER) else 0


class _Kernel:
    """One kernel, laid out."""

    def __init__(self, module: Module, function: Function, body: Body) -> None:
        self._module, self._function, self._body = module, function, body
        self._shared, self._dynamic_align = self._lay_out_shared()
        self._local = _lay_out([variable for variable in body.variables if variable.space == "local"], 0)
        self._constants: dict[Constant, int] = {}
        self._specials: dict[str, int] = {}
        self._constant_bytes = 0
        steps = self._steps()
        self._places, self._file_bytes = place_registers(steps)
        self._jumps: list[int] = []
        self._lines = [self._line(step) for step in steps]

    def lines(self) -> list[str]:
        function = self._function
        parameters = [f"{variable.offset} {variable.size}" for variable in function.parameters]
        total = max((variable.offset + variable.size for variable in function.parameters), default=0)
        memory = (
            self._file_bytes,
            self._constant_bytes,
            self._shared,
            self._dynamic_align,
            self._local,
            function.max_threads,
        )
        return [
            f"kernel {function.name}",
            f"parameters {total} {' '.join(parameters)}",
            f"memory {' '.join(map(str, memory))}",
            f"jumps {' '.join(map(str, self._jumps))}",
            *(f"special {name} {place}" for name, place in self._specials.items()),
            *(f"constant {place} {constant.bytes} {constant.value}" for constant, place in self._constants.items()),
            *self._lines,
            "end",
        ]

    def _lay_out_shared(self) -> tuple[int, int]:
        """Shared variables one after the other; those without a size begin where the dynamic part does."""
        everything = [*self._body.variables, *self._module.variables.values()]
        shared = [variable for variable in everything if variable.space == "shared"]
        fixed = [variable for variable in shared if not variable.external and variable.size]
        dynamic = [variable for variable in shared if variable.external or not variable.size]
        used = {id(found) for found in _symbols(self._body)}
        fixed = [variable for variable in fixed if id(variable) in used]
        align = max([16, *(variable.align for variable in dynamic)])
        end = _lay_out(fixed, 0)
        for variable in dynamic:
            variable.offset = -(-end // align) * align
        return end, align

    def _steps(self) -> list[Step]:
        body = self._body
        at: dict[str, int] = {}
        emitted: list[tuple[Instruction, Emitted]] = []
        for instruction in body.instructions:
            if instruction.name == ":":
                (label,) = instruction.operands
                assert isinstance(label, Label)
                at[label.name] = len(emitted)
                emitted.append((instruction, Emitted("label", (), ())))
            else:
                emitted.append((instruction, lower(instruction)))
        steps = []
        for instruction, made in emitted:
            names = body.tables[made.labels[0]] if made.handler == "brx.idx" else made.labels
            missing = [name for name in names if name not in at]
            if missing:
                raise PtxError(instruction.line, f"there is no label {missing[0]}")
            guard = None if made.handler == "bra.if" else instruction.guard
            text = instruction.name + (f"@{instruction.source}" if instruction.source else "")
            targets = tuple(at[name] for name in names)
            steps.append(Step(made, guard, instruction.line, text.replace(" ", "_"), targets))
        return steps

    def _line(self, step: Step) -> str:
        made = step.emitted
        target, immediate = (step.targets or (0,))[0], made.immediate
        if made.handler == "brx.idx":
            target, immediate = len(self._jumps), len(step.targets)
            self._jumps += step.targets
        guard = _NONE if step.guard is None else self._places[step.guard.register] | int(step.guard.negated)
        places = [str(self._place(place)) for place in (*made.results, *made.sources)]
        counts = (len(made.results), sum(not isinstance(place, Raw) for place in made.sources))
        fields = (made.handler, guard, made.flags, immediate, target, step.line, _use(made.handler), *counts, step.text)
        return f"i {' '.join(map(str, fields))} {' '.join(places)}".rstrip()

    def _place(self, place: Place) -> int:
        if place is None:
            return _NONE
        if isinstance(place, Raw):
            return place.value
        if isinstance(place, Register):
            return self._places[place]
        if isinstance(place, Special):
            if place.name not in self._specials:
                self._file_bytes = -(-self._file_bytes // _LINE) * _LINE
                self._specials[place.name] = self._file_bytes
                self._file_bytes += 4 * LANES
            return self._specials[place.name]
        if place not in self._constants:
            self._constants[place] = self._constant_bytes | _OF_BLOCK
            self._constant_bytes += max(_LINE, place_bytes(8 * place.bytes) if place.bytes > 1 else _LINE)
        return self._constants[place]


def _lay_out(variables: Sequence[Variable], begin: int) -> int:
    for variable in variables:
        variable.offset = -(-begin // variable.align) * variable.align
        begin = variable.offset + variable.size
    return -(-begin // 16) * 16


def _symbols(body: Body) -> list[Variable]:
    """The variables whose addresses a body takes."""
    found = []
    for instruction in body.instructions:
        for operand in instruction.operands:
            inner = getattr(operand, "base", operand)
            variable = getattr(inner, "variable", None)
            if variable is not None:
                found.append(variable)
    return found
