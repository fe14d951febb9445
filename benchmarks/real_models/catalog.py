"""models.tsv: which models there are, which package holds each, and what the file must hash to."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MODELS = Path(__file__).with_name("models.tsv")
COLUMNS = ("name", "registry", "package", "version", "path", "kind", "inputs", "sha256")
REGISTRIES = ("pip", "npm")
SAMPLED, GIVEN = "sampled", "given"


@dataclass(frozen=True)
class Model:
    """A model in a package. `path` is its place in there; `chunks:KEY` is a file that resources.json has in pieces."""

    name: str
    registry: str
    package: str
    version: str
    path: str
    kind: str
    inputs: str
    """`sampled` when `ortisan build` finds inputs by itself, `given` when it needs --inputs."""
    sha256: str

    @property
    def requirement(self) -> str:
        return f"{self.package}{'==' if self.registry == 'pip' else '@'}{self.version}"


def read_models(path: Path = MODELS) -> tuple[Model, ...]:
    """The models of a list, checked: a `ValueError` names the line that is wrong."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    if not rows or tuple(rows[0]) != COLUMNS:
        raise ValueError(f"'{path}' must begin with the columns {', '.join(COLUMNS)}")
    models: list[Model] = []
    for number, row in enumerate(rows[1:], start=2):
        problem = _problem(row, {model.name for model in models})
        if problem:
            raise ValueError(f"line {number} of '{path}': {problem}")
        models.append(Model(*row))
    return tuple(models)


def _problem(row: Sequence[str], seen: set[str]) -> str:
    if len(row) != len(COLUMNS):
        return f"{len(row)} columns, expected {len(COLUMNS)}"
    model = Model(*row)
    if not re.fullmatch(r"\w+", model.name):
        return f"'{model.name}' is no name for a file"
    if model.name in seen:
        return f"'{model.name}' is there twice"
    if model.registry not in REGISTRIES:
        return f"the registry is '{model.registry}', expected {' or '.join(REGISTRIES)}"
    if model.inputs not in (SAMPLED, GIVEN):
        return f"inputs are '{model.inputs}', expected {SAMPLED} or {GIVEN}"
    if not re.fullmatch(r"[0-9a-f]{64}", model.sha256):
        return "the hash is not 64 hexadecimal digits"
    return ""
