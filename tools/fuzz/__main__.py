"""python -m tools.fuzz [--count N] [--seed S] [--out FOLDER] [--models FOLDER]: see docs/fuzzing.md."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tools.fuzz.bases import base_models
from tools.fuzz.outcome import Outcome
from tools.fuzz.pool import Plan, Pool
from tools.fuzz.report import Report

_LINE_EVERY = 50


def main(words: list[str] | None = None) -> int:
    """0 when no mutant showed a bug."""
    chosen = _arguments(words)
    numbers = [chosen.only] if chosen.only is not None else range(chosen.first, chosen.first + chosen.count)
    plan = Plan(chosen.seed, numbers, chosen.build_every, chosen.builds, chosen.seconds, chosen.models)
    report = Report(chosen.out, base_models(chosen.models), chosen.seed)
    pool, start = Pool(plan, chosen.processes), time.monotonic()

    def done(index: int, outcome: Outcome) -> None:
        report.add(index, outcome)
        total = sum(report.counts().values())
        if outcome.is_bug or chosen.only is not None:
            _say(f"{index}: {outcome.kind} {outcome.place} {outcome.said[:300]}")
        if total % _LINE_EVERY == 0:
            _say(f"{total} mutants, {pool.builds} builds, {time.monotonic() - start:.0f} s: {dict(report.counts())}")
            report.write()

    pool.run(done)
    report.write()
    sys.stdout.write(f"{report.table()}\n")
    return int(bool(report.bugs()))


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=5000, help="how many mutants")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--only", type=int, help="this mutant alone, and what came of it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--models", type=Path, help="a folder of .onnx files to mutate too")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--build-every", type=int, default=10, help="one of so many is built whatever it is")
    parser.add_argument("--builds", type=int, help="no more builds than this")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long a mutant may take")
    return parser.parse_args(words)


def _say(text: str) -> None:
    sys.stderr.write(f"fuzz: {text}\n")


if __name__ == "__main__":
    raise SystemExit(main())
