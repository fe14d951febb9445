"""How a mutant ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CLASSES: Mapping[str, str] = {
    "right": "built, and equal to ONNX Runtime on all samples",
    "compiled": "compiled as far as the kernel plan, and equal to ONNX Runtime in numpy where that runs it",
    "nothing": "nothing of it can be compiled",
    "refused": "an OrtisanError, one sentence",
    "departed": "built, with a part that departed from ONNX Runtime and was left to it",
    "wrong": "built, and not equal to ONNX Runtime",
    "internal": "an InternalError: not foreseen",
    "raw": "another exception",
    "signal": "the process died",
    "hang": "no end within the limit",
    "left behind": "files that were not there before",
}
BUGS = ("departed", "wrong", "internal", "raw", "signal", "hang", "left behind")


@dataclass(frozen=True)
class Outcome:
    """The class of a mutant, what was said, and where (for exceptions)."""

    kind: str
    said: str = ""
    place: str = ""
    build_is_due: bool = False
    """What it compiles to is worth a build: numpy and ONNX Runtime disagree on it."""
    compiled_to: tuple[str, ...] = ()
    """The ops with the element types and ranks of their inputs."""

    @property
    def is_bug(self) -> bool:
        return self.kind in BUGS


def from_json(record: Mapping[str, Any]) -> Outcome:
    return Outcome(**{**record, "compiled_to": tuple(record["compiled_to"])})
