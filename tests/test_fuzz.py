"""The fuzzer itself, and a few hundred of its mutants."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tools.fuzz import mutate, pool
from tools.fuzz.bases import base_models
from tools.fuzz.outcome import CLASSES, Outcome
from tools.fuzz.pool import Plan, Pool
from tools.fuzz.report import Report
from tools.fuzz.worker import MODEL

SEED = 14
BASES = base_models()


def outcomes(tmp_path: Path, plan: Plan) -> Report:
    report = Report(tmp_path / "out", BASES, plan.seed)
    Pool(plan, 1).run(report.add)
    return report


def test_there_are_twenty_models_and_a_mutant_depends_on_its_number_alone() -> None:
    assert len(BASES) == 20
    first = [mutate.make_mutant(BASES, SEED, index) for index in range(60)]
    again = [mutate.make_mutant(BASES, SEED, index) for index in reversed(range(60))]
    assert first == again[::-1]
    assert len({mutant.content for mutant in first}) == 60
    assert {mutant.base for mutant in first} == set(BASES)


@pytest.mark.parametrize("name", mutate.MUTATIONS)
def test_every_mutation_changes_some_model(name: str) -> None:
    changed = 0
    for index, base in enumerate(BASES.values()):
        model = onnx.ModelProto()
        model.CopyFrom(base)
        mutate.MUTATIONS[name](model, np.random.default_rng(index))
        changed += model != base
    assert changed > 5


@pytest.mark.build
def test_hundreds_of_mutants_end_well(tmp_path: Path) -> None:
    """Each is compiled, left or refused; some are built and compared."""
    report = outcomes(tmp_path, Plan(SEED, range(240), build_every=60, most_builds=5))
    assert report.bugs() == [], report.table()
    counts = report.counts()
    assert sum(counts.values()) == 240
    assert counts["compiled"] > 60
    assert counts["right"] > 0


WORKER = """
import json, os, sys, time
for line in sys.stdin:
    index = json.loads(line)["index"]
    if index == 1: os.abort()
    if index == 2: time.sleep(60)
    print(json.dumps({"kind": "refused", "said": str(index), "place": "", "build_is_due": False, "compiled_to": []}), flush=True)
"""


def test_deaths_and_hangs_are_found_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tools" / "fuzz").mkdir(parents=True)
    for package in (tmp_path / "tools", tmp_path / "tools" / "fuzz"):
        (package / "__init__.py").touch()
    (tmp_path / "tools" / "fuzz" / "worker.py").write_text(WORKER)
    monkeypatch.setattr(pool, "_ROOT", tmp_path)
    report = outcomes(tmp_path, Plan(SEED, range(5), seconds=5))
    assert report.counts() == {"refused": 3, "signal": 1, "hang": 1}
    assert "SIGABRT" in report.table()
    report.write()
    assert json.loads((tmp_path / "out" / "report.json").read_text())["mutants"] == 5
    assert (tmp_path / "out" / "bugs" / "signal" / "1.onnx").read_bytes() == mutate.make_mutant(BASES, SEED, 1).content


def test_what_is_left_behind_is_a_bug() -> None:
    assert MODEL.endswith(".onnx")
    assert all(Outcome(kind).is_bug == (kind not in ("right", "compiled", "nothing", "refused")) for kind in CLASSES)
