"""Scalar functions that a caller brings along: C++ text over the operands of an elementwise op.

A snippet is a row of the scalar table that carries its C++, and a lowering entry in the domain `ortisan.snippet`. The
text always comes from the calling process, never from a model: a model only names a snippet, and the name contains the
hash of its definition.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from ortisan.errors import OptionError
from ortisan.registry.entries import Site, lowers
from ortisan.registry.graph import Value
from ortisan.registry.refusal import Refused
from ortisan.registry.scalars import SNIPPETS, Scalar

DOMAIN = "ortisan.snippet"
PARAMS = "params"
"""The attribute of a node that holds its numbers, a float64 tensor."""

_HASH_DIGITS = 8
_MAX_NAME = 40
_TAKEN = frozenset(
    {"T", "auto", "bool", "break", "case", "char", "class", "const", "continue", "default", "delete", "do", "double"}
    | {"else", "enum", "false", "float", "for", "goto", "if", "inline", "int", "long", "namespace", "new", "operator"}
    | {"private", "public", "return", "short", "signed", "sizeof", "static", "struct", "switch", "template", "this"}
    | {"throw", "true", "try", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "while"}
)


def add_snippet(
    title: str,
    cpp: str,
    operands: Sequence[str],
    params: Sequence[str] = (),
    *,
    reference: Callable[..., Any],
    to_bool: bool = False,
) -> str:
    """Makes C++ text a scalar function; returns the op type of its nodes in the domain `ortisan.snippet`.

    `cpp` is an expression of the names in `operands` and `params`, or statements that return one. They are of type T:
    float or double. Functions of templates/cpu/math/scalar.h can be called by their names. `reference` gets float64
    arrays and the params. The same definition gives the same op type, and takes the newest reference.
    """
    text = cpp.strip()
    if not text or "\0" in text:
        raise OptionError(f"the C++ snippet of '{title}' is empty or not text")
    if not operands:
        raise OptionError(f"the C++ snippet of '{title}' has no operand, so its shape is not known")
    for name in (*operands, *params):
        if not (name.isidentifier() and name.isascii()) or name in _TAKEN:
            raise OptionError(f"'{name}' can't be a name in the C++ snippet of '{title}'; rename the argument")
    definition = repr((text, tuple(operands), tuple(params), to_bool))
    digest = hashlib.sha256(definition.encode("utf-8", "replace")).hexdigest()[:_HASH_DIGITS]
    name = f"{re.sub(r'[^A-Za-z0-9]+', '_', title)[:_MAX_NAME]}_{digest}".lower()
    known = name in SNIPPETS
    SNIPPETS[name] = Scalar(
        name,
        f"snippet_{digest}",
        reference,
        arity=len(operands),
        params=len(params),
        to_bool=to_bool,
        discontinuous=True,  # it may be
        arguments=(*operands, *params),
        body=text if re.search(r"\breturn\b", text) else f"return {text};",
    )
    if not known:
        lowers(name, attributes=[PARAMS], domain=DOMAIN)(_lower(name))
    return name


def _lower(name: str) -> Callable[[Site], Value]:
    def lower(site: Site) -> Value:
        row = SNIPPETS[name]
        numbers: Sequence[float] = site.attribute(PARAMS, ())
        params = tuple(float(number) for number in numbers)
        if len(params) != row.params:
            raise Refused(f"{name} has {len(params)} numbers, expected {row.params}")
        return site.builder.elementwise(name, *(site.need(index) for index in range(row.arity)), params=params)

    return lower
