"""What came of the mutants: a JSON file, a table by class, and a folder of reproducers for each bug."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from tools.fuzz.mutate import make_mutant
from tools.fuzz.outcome import BUGS, CLASSES, Outcome


class Report:
    """Collects outcomes into `folder`; bugs are written as they are found."""

    def __init__(self, folder: Path, bases: Mapping[str, onnx.ModelProto], seed: int) -> None:
        self._folder, self._bases, self._seed = folder, bases, seed
        self._rows: list[dict[str, Any]] = []
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, index: int, outcome: Outcome) -> None:
        mutant = make_mutant(self._bases, self._seed, index)
        row = {
            "index": index,
            "base": mutant.base,
            "mutations": list(mutant.mutations),
            "class": outcome.kind,
            "said": outcome.said,
            "place": outcome.place,
        }
        self._rows.append(row)
        if outcome.is_bug:
            place = self._folder / "bugs" / outcome.kind.replace(" ", "-")
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{index}.onnx").write_bytes(mutant.content)
            (place / f"{index}.json").write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")

    def counts(self) -> Counter[str]:
        return Counter(row["class"] for row in self._rows)

    def bugs(self) -> list[dict[str, Any]]:
        return [row for row in self._rows if row["class"] in BUGS]

    def write(self) -> None:
        record = {"seed": self._seed, "mutants": len(self._rows), "classes": self.counts(), "rows": self._rows}
        (self._folder / "report.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    def table(self) -> str:
        """The classes, then each bug once, by where it is raised and what it says."""
        counts = self.counts()
        lines = [f"{counts[kind]:6}  {kind:12} {meaning}" for kind, meaning in CLASSES.items() if counts[kind]]
        groups: dict[tuple[str, str, str], list[int]] = {}
        for row in self.bugs():
            groups.setdefault((row["class"], row["place"], _shape_of(row["said"])), []).append(row["index"])
        for (kind, place, said), indices in sorted(groups.items(), key=lambda item: -len(item[1])):
            numbers = ", ".join(map(str, sorted(indices)[:5])) + (", ..." if len(indices) > 5 else "")
            lines += ["", f"{len(indices)} x {kind} {place}: {said}", f"    mutants {numbers}"]
        return "\n".join(lines)


def _shape_of(said: str) -> str:
    """A message without what differs from mutant to mutant."""
    text = re.sub(r"; please send the report.*", "", said)
    return re.sub(r"'[^']*'|\d+", "_", text)[:160]
