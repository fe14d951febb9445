"""Symbolic dims: an int, or a sympy expression over non-negative integer symbols.

Equal expressions are equal objects, so `a == b` means provably equal. What can't be proven at compile
time becomes a `Guard`, checked when the symbols are known.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import sympy

from ortisan.registry.refusal import Refused

Dim: TypeAlias = Any  # int | sympy.Expr; sympy ships no usable types
Shape: TypeAlias = tuple[Dim, ...]

TYPICAL_DIM = 64
"""The size assumed for a symbol when symbolic sizes are compared or summed."""

MAX_PARTS = 32
"""The most symbols and numbers that a dim may be made of: arithmetic takes longer with each of them."""

GuardKind = Literal["equal", "broadcastable", "divisible", "at_least"]


class broadcast_dim(sympy.Function):  # type: ignore[misc]
    """`b` where `a` is 1, else `a`: the result of broadcasting two dims known only at run time."""

    nargs = 2
    is_integer = True
    is_nonnegative = True

    @classmethod
    def eval(cls, a: Dim, b: Dim) -> Dim:
        if b in (a, 1):
            return a
        if a == 1:
            return b
        if isinstance(a, sympy.Integer):
            return a
        if isinstance(b, sympy.Integer):
            return b
        return None


@dataclass(frozen=True)
class Guard:
    """A relation between two dims that must hold at run time; `where` says which node needs it."""

    kind: GuardKind
    a: Dim
    b: Dim
    where: str


def symbol(name: str) -> Dim:
    return sympy.Symbol(name, integer=True, nonnegative=True)


def is_static(dim: Dim) -> bool:
    return isinstance(dim, int)


@functools.lru_cache(maxsize=2**14)
def is_long(dim: Dim) -> bool:
    """Whether a dim is made of more parts than arithmetic on it can afford."""
    parts = 0
    for part in () if is_static(dim) else sympy.preorder_traversal(dim):
        parts += not part.args
        if parts > MAX_PARTS:
            return True
    return False


@functools.lru_cache(maxsize=2**14, typed=True)
def settle(dim: Dim) -> Dim:
    """The simplest form: a Python int where the value is known."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, sympy.Integer):
        return int(dim)
    if not isinstance(dim, sympy.Expr):
        return int(dim)
    expanded = sympy.expand(dim)
    if expanded.has(sympy.floor):
        expanded = sympy.expand(expanded.replace(lambda part: isinstance(part, sympy.floor), _floor_of))
    return int(expanded) if isinstance(expanded, sympy.Integer) else expanded


def _floor_of(part: Any) -> Any:
    """One form of a floor: floor((floor(x) + k) / n) is floor((x + k) / n), and the number in it is from 0 to 1."""
    inside = sympy.expand(part.args[0])
    for term in sympy.Add.make_args(inside):
        factor, rest = term.as_coeff_Mul()
        if isinstance(rest, sympy.floor) and factor.is_Rational and factor.p == 1:
            others = sympy.expand((inside - term) / factor)
            if others.is_integer:
                return _floor_of(sympy.floor((rest.args[0] + others) * factor, evaluate=False))
    whole = sympy.floor(inside.as_coeff_Add()[0])
    return sympy.floor(inside - whole) + whole


def adopt(expression: Any) -> Dim:
    """Rewrites an expression made elsewhere over our symbols: same names, our assumptions."""
    if isinstance(expression, int):
        return expression
    return settle(expression.subs({s: symbol(s.name) for s in expression.free_symbols}))


def total(dims: Iterable[Dim]) -> Dim:
    """The sum of any number of dims, made at once: adding one by one sorts all terms each time."""
    numbers, others = 0, []
    for dim in dims:
        if is_static(dim):
            numbers += dim
        else:
            others.append(dim)
    return sympy.Add(numbers, *others) if others else numbers


def product(dims: Iterable[Dim]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return settle(total)


@functools.lru_cache(maxsize=2**14)
def floor_div(a: Dim, b: Dim) -> Dim:
    if is_static(a) and is_static(b):
        return a // b
    exact = _exact_quotient(a, b)
    return settle(sympy.floor(sympy.sympify(a) / b)) if exact is None else exact


def _exact_quotient(a: Dim, b: Dim) -> Dim | None:
    """a / b if it is an integer for all values of the symbols."""
    if isinstance(b, int) and b and not isinstance(a, int):
        terms = a.as_coefficients_dict()
        if any(not factor.is_Integer or factor % b for factor in terms.values()):
            return None
        return settle(sympy.Add(*(factor / b * term for term, factor in terms.items())))
    numerator, denominator = sympy.fraction(sympy.together(sympy.cancel(sympy.sympify(a) / b)))
    return settle(numerator) if denominator == 1 else None


def ceil_div(a: Dim, b: Dim) -> Dim:
    return floor_div(a + b - 1, b)


@functools.lru_cache(maxsize=2**14)
def minimum(a: Dim, b: Dim) -> Dim:
    return settle(sympy.Min(a, b))


@functools.lru_cache(maxsize=2**14)
def maximum(a: Dim, b: Dim) -> Dim:
    return settle(sympy.Max(a, b))


def symbols_of(dim: Dim) -> frozenset[str]:
    return frozenset() if is_static(dim) else frozenset(s.name for s in dim.free_symbols)


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """The number a dim stands for when its symbols have these values."""
    return int(dim) if is_static(dim) else int(_number(dim, values))


def _number(part: Dim, values: Mapping[str, int]) -> int | Fraction:
    """Walks the expression: sympy's own substitution builds and sorts a new expression at each step."""
    if part.is_Symbol:
        return values[part.name]
    if part.is_Rational:
        return int(part) if part.is_Integer else Fraction(int(part.p), int(part.q))
    function = _MEANINGS.get(type(part))
    if function is None:
        return int(part.subs({s: values[s.name] for s in part.free_symbols}))
    return function(*(_number(argument, values) for argument in part.args))


def _power(base: int | Fraction, exponent: int | Fraction) -> int | Fraction:
    if exponent != int(exponent):
        raise ValueError(f"{base} to the power of {exponent} is no dim")
    return Fraction(base) ** int(exponent)


_MEANINGS: dict[Any, Callable[..., int | Fraction]] = {
    sympy.Add: lambda *parts: sum(parts),
    sympy.Mul: lambda *parts: math.prod(parts),
    sympy.Pow: _power,
    sympy.Min: min,
    sympy.Max: max,
    sympy.Mod: lambda a, b: a % b,
    sympy.floor: math.floor,
    sympy.ceiling: math.ceil,
    broadcast_dim: lambda a, b: b if a == 1 else a,
}


@functools.lru_cache(maxsize=4096)
def typical(dim: Dim) -> int:
    """The number a dim stands for when every symbol has a typical size."""
    return evaluate(dim, dict.fromkeys(symbols_of(dim), TYPICAL_DIM))


def bounds_of(dim: Dim, bounds: Mapping[str, tuple[int, int]]) -> tuple[int, int | None]:
    """The smallest and largest value of a dim at its symbols' bounds. A symbol without bounds ranges from 1 upwards."""
    names = symbols_of(dim)
    try:
        low = evaluate(dim, {name: max(1, bounds[name][0]) if name in bounds else 1 for name in names})
        if not names <= bounds.keys():
            return max(0, low), None
        high = evaluate(dim, {name: max(1, bounds[name][1]) for name in names})
    except (TypeError, ValueError):
        return 0, None
    return max(0, min(low, high)), max(0, low, high)


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    if is_static(dim):
        return dim
    return settle(dim.subs({s: values[s.name] for s in dim.free_symbols if s.name in values}))


def _simpler(a: Dim, b: Dim) -> Dim:
    """Of two dims taken to be equal, the one that is easier to compute."""
    return min(a, b, key=lambda dim: 0 if is_static(dim) else 1 + dim.count_ops())


class Facts:
    """Collects the assumptions that shape inference makes about symbolic dims for one node."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.guards: list[Guard] = []

    def _require(self, kind: GuardKind, a: Dim, b: Dim) -> None:
        guard = Guard(kind, a, b, self.where)
        if guard not in self.guards:
            self.guards.append(guard)

    def equal(self, a: Dim, b: Dim, what: str) -> Dim:
        a, b = settle(a), settle(b)
        if a == b:
            return a
        if is_static(a) and is_static(b):
            raise Refused(f"{what} differ: {a} and {b}")
        self._require("equal", a, b)
        return _simpler(a, b)

    def divisible(self, a: Dim, b: Dim, what: str) -> Dim:
        """a / b, which must be exact."""
        quotient = _exact_quotient(a, b)
        if quotient is not None:
            return quotient
        if is_static(a) and is_static(b):
            raise Refused(f"{what}: {a} is not a multiple of {b}")
        self._require("divisible", a, b)
        return floor_div(a, b)

    def at_least(self, a: Dim, b: Dim, what: str) -> None:
        difference = settle(sympy.sympify(a) - b)
        if is_static(difference):
            if difference < 0:
                raise Refused(f"{what}: {a} is below {b}")
            return
        if difference.is_nonnegative:
            return
        self._require("at_least", a, b)

    def broadcast_dims(self, a: Dim, b: Dim) -> Dim:
        if b in (a, 1):
            return a
        if a == 1:
            return b
        if is_static(a) and is_static(b):
            raise Refused(f"shapes don't broadcast: {a} against {b}")
        for clipped, whole in ((a, b), (b, a)):
            # A slice 0:s of a table of n rows has min(n, s) rows, and is meant to have s.
            if isinstance(clipped, sympy.Min) and whole in clipped.args:
                self._require("equal", clipped, whole)
                return whole
        self._require("broadcastable", a, b)
        return settle(broadcast_dim(a, b))

    def broadcast(self, *shapes: Shape) -> Shape:
        rank = max((len(shape) for shape in shapes), default=0)
        result: list[Dim] = [1] * rank
        for shape in shapes:
            offset = rank - len(shape)
            for axis, dim in enumerate(shape):
                result[offset + axis] = self.broadcast_dims(result[offset + axis], dim)
        return tuple(result)
