"""The tuning cache: choices are found again, and nothing that is wrong with the file stops a build."""

from __future__ import annotations

import multiprocessing
import sqlite3
import warnings
from pathlib import Path

import pytest

from ortisan.codegen.cpu.tune import remember as tuning_cache

FACTS = {"cpu": "a", "size": "1x2x3"}
ANSWER = {"blocking": [768, 128, 100000, True]}


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tuning.sqlite"


def test_what_was_remembered_is_found(file: Path) -> None:
    assert tuning_cache.look_up(FACTS) is None
    assert not file.parent.exists()
    assert tuning_cache.remember(FACTS, ANSWER) == ANSWER
    assert tuning_cache.look_up(FACTS) == ANSWER
    assert tuning_cache.look_up(FACTS | {"cpu": "b"}) is None
    (row,) = tuning_cache.all_remembered()
    assert (row.facts, row.answer) == (FACTS, ANSWER)


def test_the_first_answer_counts() -> None:
    tuning_cache.remember(FACTS, ANSWER)
    assert tuning_cache.remember(FACTS, {"blocking": [1, 1, 1, False]}) == ANSWER
    assert tuning_cache.look_up(FACTS) == ANSWER


def test_forgetting(file: Path) -> None:
    assert tuning_cache.forget_all() == 0
    tuning_cache.remember(FACTS, ANSWER)
    tuning_cache.remember(FACTS | {"cpu": "b"}, ANSWER)
    assert tuning_cache.forget_all() == 2
    assert not file.exists()
    assert tuning_cache.look_up(FACTS) is None


@pytest.mark.parametrize("first", ["look_up", "remember"])
@pytest.mark.parametrize("damage", ["text", "header only", "torn"])
def test_a_damaged_file_is_moved_aside(file: Path, damage: str, first: str) -> None:
    for number in range(60):
        tuning_cache.remember({"n": str(number)}, ANSWER)
    content = file.read_bytes()
    broken = {"text": b"no database at all, but long enough to be one" * 9, "header only": content[:90] + b"x" * 2000}
    file.write_bytes(broken.get(damage, content[:4096] + b"\xff" * (len(content) - 4096)))
    ask, expected = {
        "look_up": (lambda: tuning_cache.look_up({"n": "1"}), None),
        "remember": (lambda: tuning_cache.remember({"n": "1"}, ANSWER), ANSWER),
    }[first]
    with pytest.warns(UserWarning, match="is damaged .* and was moved to"):
        assert ask() == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuning_cache.remember(FACTS, ANSWER)
        assert tuning_cache.look_up(FACTS) == ANSWER
    assert len([path for path in file.parent.iterdir() if "damaged" in path.name]) == 1
    tuning_cache.forget_all()
    assert list(file.parent.iterdir()) == []


def test_rows_that_are_no_objects_count_as_absent(file: Path) -> None:
    tuning_cache.remember(FACTS, ANSWER)
    base = sqlite3.connect(file)
    base.execute("UPDATE choices SET answer = '[1'")
    base.commit()
    base.close()
    assert tuning_cache.look_up(FACTS) is None
    assert tuning_cache.all_remembered() == []


def test_a_read_only_file_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuning_cache.remember(FACTS, ANSWER)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, timeout: connect(f"file:{path}?mode=ro", uri=True))
    assert tuning_cache.look_up(FACTS) == ANSWER
    with pytest.warns(UserWarning, match="can't be used .*readonly"):
        assert tuning_cache.remember({"n": "1"}, ANSWER) == ANSWER
    assert len(tuning_cache.all_remembered()) == 1


def test_a_file_that_cannot_be_made_is_a_warning(file: Path) -> None:
    file.parent.parent.mkdir(exist_ok=True)
    file.parent.write_text("no folder")
    with pytest.warns(UserWarning, match="can't be used .* set ORTISAN_CACHE_DIR"):
        assert tuning_cache.remember(FACTS, ANSWER) == ANSWER
    assert tuning_cache.look_up(FACTS) is None


def test_a_file_that_is_locked_for_long_is_a_warning(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning_cache, "_PATIENCE_SECONDS", 0.05)
    tuning_cache.remember(FACTS, ANSWER)
    base = sqlite3.connect(file)
    try:
        base.execute("BEGIN EXCLUSIVE")
        with pytest.warns(UserWarning, match="locked"):
            assert tuning_cache.look_up(FACTS) is None
    finally:
        base.close()
    assert tuning_cache.look_up(FACTS) == ANSWER


def _remember_often(writer: int) -> None:
    warnings.simplefilter("error")
    for number in range(40):
        kept = tuning_cache.remember({"n": str(number)}, {"by": writer})
        assert tuning_cache.look_up({"n": str(number)}) == kept


def test_processes_agree() -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_remember_often, args=(n,)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 3
    assert len(tuning_cache.all_remembered()) == 40
