"""python -m tools.architectures [--only NAME]... [--seconds N] [--results FILE] [--page docs/torch-architectures.md]

Runs what the file of results does not have yet, and writes the page from it. The first run takes an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.architectures.models import ALL, make_model
from tools.architectures.page import render
from tools.architectures.sweep import ROADS, Outcome, run


def main(words: list[str] | None = None) -> int:
    """0 when no architecture departs from eager or ends with an error."""
    parser = argparse.ArgumentParser(prog="python -m tools.architectures", description=__doc__)
    parser.add_argument("--only", action="append", help="this architecture, run again; may be repeated")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no other one after this time")
    parser.add_argument("--results", type=Path, default=Path("build/architectures.json"))
    parser.add_argument("--page", type=Path, help="write the table here, as Markdown")
    chosen = parser.parse_args(words)
    found = json.loads(chosen.results.read_text()) if chosen.results.exists() else {}
    start = time.monotonic()
    for name in chosen.only or ALL:
        if (name in found and not chosen.only) or time.monotonic() - start > chosen.seconds:
            continue
        found[name] = _row(name)
        sys.stderr.write(f"{name}: {found[name]}\n")
        chosen.results.parent.mkdir(parents=True, exist_ok=True)
        chosen.results.write_text(json.dumps(found, indent=1) + "\n")
    if chosen.page is not None:
        chosen.page.write_text(render(found))
    return int(any("raised" in row or not Outcome(**row).is_right for each in found.values() for row in each.values()))


def _row(name: str) -> dict[str, Any]:
    """What each road gave; empty where this release of transformers has no such model."""
    row: dict[str, Any] = {}
    for road in ROADS:
        try:
            model = make_model(name)
            if model is None:
                return {}
            row[road] = asdict(run(name, model, road))
        except Exception as error:  # noqa: BLE001  # the sweep is there to find them
            row[road] = {"raised": f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]}
    return row


if __name__ == "__main__":
    sys.exit(main())
