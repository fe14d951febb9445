"""Dims as C++ expressions over the symbol vector `s`, in the vocabulary of templates/graph/graph.h."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from ortisan.errors import UnsupportedError
from ortisan.registry.dims import Dim, broadcast_dim, is_static, product


class DimPrinter:
    """Prints dims of one graph; symbol i of the graph is `s[i]`."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.index = {name: i for i, name in enumerate(symbols)}

    def __call__(self, dim: Dim) -> str:
        return str(dim) if is_static(dim) else self._print(dim)

    def all(self, dims: Sequence[Dim]) -> tuple[str, ...]:
        return tuple(self(dim) for dim in dims)

    def broadcast_strides(
        self, have: Sequence[Dim], extents: Sequence[Dim], step: Dim = 1, strides: Sequence[Dim] | None = None
    ) -> tuple[str, ...]:
        """Strides under which a tensor is read as if it had these extents.

        It is contiguous, its elements `step` apart, unless `strides` says otherwise. A repeated dim has stride 0; where
        only run time tells whether it is repeated, so does the printed expression.
        """
        missing = len(extents) - len(have)
        own = contiguous_strides(have) if strides is None else strides
        printed = ["0"] * missing
        for dim, extent, stride in zip(have, extents[missing:], own, strict=True):
            text = self(product((stride, step)))
            if dim == extent:
                printed.append(text)
            else:
                printed.append("0" if dim == 1 else f"({self(dim)} == 1 ? 0 : {text})")
        return tuple(printed)

    def _print(self, e: sympy.Expr) -> str:
        if isinstance(e, sympy.Integer):
            return f"I({int(e)})"
        if isinstance(e, sympy.Symbol):
            return f"s[{self.index[e.name]}]"
        if isinstance(e, sympy.Add):
            return "(" + " + ".join(self._print(term) for term in e.args) + ")"
        if isinstance(e, sympy.Mul):
            return "(" + " * ".join(self._print(factor) for factor in e.args) + ")"
        if isinstance(e, sympy.Pow) and isinstance(e.exp, sympy.Integer) and int(e.exp) > 0:
            return "(" + " * ".join([self._print(e.base)] * int(e.exp)) + ")"
        if isinstance(e, sympy.floor):
            numerator, denominator = sympy.fraction(sympy.together(e.args[0]))
            return f"floor_div({self._print(sympy.expand(numerator))}, {self._print(denominator)})"
        if isinstance(e, sympy.Mod):
            a, b = (self._print(argument) for argument in e.args)
            return f"({a} - {b} * floor_div({a}, {b}))"
        for kind, name in ((sympy.Max, "max_dim"), (sympy.Min, "min_dim"), (broadcast_dim, "broadcast_dim")):
            if isinstance(e, kind):
                return self._nest(name, [self._print(argument) for argument in e.args])
        raise UnsupportedError(f"the dim {e} can't be computed at run time")

    @staticmethod
    def _nest(name: str, arguments: Sequence[str]) -> str:
        first, *rest = arguments
        return f"{name}({first}, {DimPrinter._nest(name, rest)})" if rest else first


def contiguous_strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Row-major strides, in elements."""
    return tuple(product(shape[axis + 1 :]) for axis in range(len(shape)))
