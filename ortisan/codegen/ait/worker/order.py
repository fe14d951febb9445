"""Makes AITemplate's output the same each time: it goes through sets of tensors and ops, in the order of addresses."""

from __future__ import annotations

import itertools
from typing import Any

from aitemplate.compiler.base import Operator, Tensor

_NUMBERS = itertools.count()
_ATTRIBUTE = "_ortisan_number"


def _number(self: Any) -> int:
    """The place of an object among those that were ever put into a set."""
    if _ATTRIBUTE not in self.__dict__:
        self.__dict__[_ATTRIBUTE] = next(_NUMBERS)
    number: int = self.__dict__[_ATTRIBUTE]
    return number


def fix_order() -> None:
    for kind in (Tensor, Operator):
        kind.__hash__ = _number
