"""What PTX text is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from ortisan.errors import OrtisanError


class PtxError(OrtisanError):
    """PTX that can't be read, or that holds an instruction which the emulator does not know; with its line."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"PTX, line {line}: {what}")
        self.line = line


BITS = {
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)},
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "tf32": 32,
    "f16x2": 32,
    "bf16x2": 32,
    "pred": 1,
}
"""Type -> its bits."""


@dataclass(eq=False)
class Register:
    """A virtual register. Two of one name in different scopes are two."""

    name: str
    bits: int


@dataclass(frozen=True)
class Special:
    """%tid.x and its like."""

    name: str


@dataclass(frozen=True)
class Number:
    """A literal: an integer, or the bits of a float (`kind` is "int", "f32" or "f64")."""

    value: int
    kind: str = "int"


@dataclass(eq=False)
class Variable:
    """A variable of a state space. Where it is, is known once the module or the kernel is laid out."""

    name: str
    space: str
    align: int
    size: int
    data: bytes | None = None
    relocations: tuple[tuple[int, str, int], ...] = ()
    """Offset -> the name of the variable whose address is there, and what is added to it."""
    external: bool = False
    offset: int = 0


@dataclass(frozen=True)
class Symbol:
    """The address of a variable."""

    variable: Variable
    offset: int = 0


@dataclass(frozen=True)
class Label:
    name: str


@dataclass(frozen=True)
class Not:
    """A negated predicate."""

    register: Register


@dataclass(frozen=True)
class Pair:
    """`p|q`: two results."""

    first: Operand | None
    second: Operand | None


@dataclass(frozen=True)
class Vector:
    items: tuple[Operand | None, ...]


@dataclass(frozen=True)
class Address:
    base: Operand
    offset: int


Operand = Register | Special | Number | Symbol | Label | Not | Pair | Vector | Address
"""None stands for `_`, which takes no result."""


@dataclass(frozen=True)
class Guard:
    register: Register
    negated: bool


@dataclass(frozen=True)
class Instruction:
    """An instruction, or a label in front of the next one (its name is then ":")."""

    name: str
    operands: tuple[Operand | None, ...]
    guard: Guard | None
    line: int
    source: str = ""
    """File and line of the CUDA source, where the PTX says it."""


@dataclass
class Body:
    """The statements of a kernel, device functions put in the place of their calls."""

    instructions: list[Instruction] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    """Shared and local ones, and the parameters of calls, which are local."""
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of branch targets -> labels."""


@dataclass(frozen=True)
class Function:
    name: str
    is_kernel: bool
    results: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    begin: int
    """Where its body is in the text; -1 for a declaration."""
    line: int
    max_threads: int = 1024


@dataclass
class Module:
    text: str
    version: str
    target: str
    functions: dict[str, Function]
    variables: dict[str, Variable]
    files: dict[str, str]
