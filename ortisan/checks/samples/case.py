"""One set of inputs, and the record of one that the model refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ortisan.registry.dtypes import Array


@dataclass(frozen=True, eq=False)
class Case:
    """One set of inputs, with a label for reports."""

    label: str
    feeds: Mapping[str, Array]
    given: bool = False
    """Whether the caller supplied them, in which case a failing run is an error."""


@dataclass(frozen=True)
class Rejection:
    """Sizes that the model refused; `message` is empty if nobody said why."""

    label: str
    message: str
