"""Kernels that are a signature and a call: what most ops need beside a C++ function in the headers of their family."""

from __future__ import annotations

from dataclasses import dataclass

from ortisan.codegen.cpu.kernel import Param, Template


@dataclass(frozen=True)
class CallContext:
    """`function<types>(c, arguments)`: an argument is a C++ expression, or those of an array of int64_t."""

    params: tuple[Param, ...]
    function: str
    types: tuple[str, ...]
    arguments: tuple[str | tuple[str, ...], ...]

    @property
    def type(self) -> str:
        """The element type."""
        return self.types[-1]


def call_of(*headers: str) -> Template:
    """The template of a call of a function that these headers define, with a `CallContext`."""
    return Template("base/call", headers)
