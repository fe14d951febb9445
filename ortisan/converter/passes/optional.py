"""Passes that a model can do without: one that fails is left out, and canonicalization starts again without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ortisan.converter.passes.near_miss import NearMiss
from ortisan.errors import OrtisanError
from ortisan.registry.surprise import Surprise, surprises

_T = TypeVar("_T")


class PassFailed(Exception):
    """An optional pass failed halfway; the graph is no longer what it was before."""


class OptionalPasses:
    """Runs passes by name, except those that failed before."""

    def __init__(self) -> None:
        self._failed: dict[str, str] = {}

    def run(self, name: str, action: Callable[[], _T], otherwise: _T) -> _T:
        """The result of the pass, or `otherwise` when it was left out. Raises `PassFailed`."""
        if name in self._failed:
            return otherwise
        try:
            with surprises(OrtisanError):
                return action()
        except Surprise as surprise:
            self._failed[name] = str(surprise)
            raise PassFailed(name) from surprise

    @property
    def near_misses(self) -> list[NearMiss]:
        return [NearMiss(name, "", f"left out, because it fails ({reason})") for name, reason in self._failed.items()]
