"""What the worker is told: AITemplate calls in order, with the shapes that we infer. Plain data, written as JSON.

A dim is a number or the text of an expression over the program's own symbols (`d0_`, `d1_`). Tensors are named by us.
No text of the model is in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from ortisan.codegen.ait.model import AitConstant

ProgramDim: TypeAlias = "int | str"


@dataclass(frozen=True)
class Symbol:
    """A dim that is known at run time only, with its inclusive bounds."""

    name: str
    low: int
    high: int


@dataclass(frozen=True)
class Derived:
    """A dim of an input that is an expression of symbols."""

    name: str
    expression: str
    low: int
    high: int


@dataclass(frozen=True)
class Tensor:
    """A tensor by name; in `Call.args` and `Call.options` it stands as {"tensor": name}."""

    name: str
    dtype: str
    shape: tuple[ProgramDim, ...]


@dataclass(frozen=True)
class Kernel:
    """What a call of a kernel of ours has besides its tensors, which are the call's arguments."""

    source: str
    numbers: tuple[str, ...]
    """C++ over the sizes `s`."""
    sizes: tuple[tuple[str, ...], ...]
    """For each result its dims, as C++."""
    attributes: dict[str, Any]
    checked: bool


@dataclass(frozen=True)
class Call:
    """`op(**make)(*args)`, which gives `results`. Arguments are numbers, texts, None, lists, or tagged:

    {"tensor": name}, {"shape": dims}, {"enum": name of a scalar function}.
    """

    op: str
    make: dict[str, Any]
    args: tuple[Any, ...]
    results: tuple[Tensor, ...]
    origin: str
    """The ONNX node this is for; the worker only hands it back."""
    kernel: Kernel | None = None
    """For a kernel of ours, whose kind is `op`."""


@dataclass(frozen=True, eq=False)
class Program:
    symbols: tuple[Symbol, ...]
    derived: tuple[Derived, ...]
    inputs: tuple[Tensor, ...]
    constants: tuple[Tensor, ...]
    calls: tuple[Call, ...]
    outputs: tuple[tuple[str, str], ...]
    """AITemplate's name of an output and the tensor that it is."""
    data: tuple[AitConstant, ...] = ()
    """The constants' elements, in the order of `constants`; never part of the JSON."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Symbol of the program -> symbol of the op graph; never part of the JSON."""

    def to_json(self) -> dict[str, Any]:
        origins: dict[str, int] = {}
        calls = [
            {
                "op": call.op,
                "make": call.make,
                "args": list(call.args),
                "results": [asdict(tensor) for tensor in call.results],
                "origin": origins.setdefault(call.origin, len(origins)),
                "kernel": None if call.kernel is None else asdict(call.kernel),
            }
            for call in self.calls
        ]
        return {
            "symbols": [asdict(symbol) for symbol in self.symbols],
            "derived": [asdict(derived) for derived in self.derived],
            "inputs": [asdict(tensor) for tensor in self.inputs],
            "constants": [asdict(tensor) for tensor in self.constants],
            "calls": calls,
            "outputs": [list(pair) for pair in self.outputs],
        }

    @property
    def checked(self) -> tuple[str, ...]:
        """The nodes whose kernels report indices out of range, in the order of their numbers, from 1 on."""
        return tuple(call.origin for call in self.calls if call.kernel is not None and call.kernel.checked)

    def origin(self, number: int) -> str:
        """The node that the JSON gives this number."""
        return list(dict.fromkeys(call.origin for call in self.calls))[number]


def tensor(name: str) -> dict[str, str]:
    return {"tensor": name}


def shape(dims: Sequence[ProgramDim]) -> dict[str, list[ProgramDim]]:
    return {"shape": list(dims)}
