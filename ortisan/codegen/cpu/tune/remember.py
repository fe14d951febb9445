"""Remembers which blockings won: one SQLite file beside the build cache.

Any number of processes may use it at once; each question and each answer is a transaction of its own. What can't be
read or written is a warning and counts as absent. A damaged file is moved aside.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ortisan.codegen.tools import build_cache as cache
from ortisan.codegen.tools.cache_place import cache_folder, make_cache_folder

FILE = "tuning.sqlite"
_PATIENCE_SECONDS = 10.0
_TABLE = (
    "CREATE TABLE IF NOT EXISTS choices "
    "(key TEXT PRIMARY KEY, facts TEXT NOT NULL, answer TEXT NOT NULL, made REAL NOT NULL)"
)

T = TypeVar("T")


@dataclass(frozen=True)
class Remembered:
    """One row: what the choice depends on, what was chosen, and when."""

    facts: dict[str, Any]
    answer: dict[str, Any]
    made: float


def tuning_file() -> Path:
    return cache_folder() / FILE


def look_up(facts: Mapping[str, str]) -> dict[str, Any] | None:
    """What was chosen under these facts."""
    question = ("SELECT answer FROM choices WHERE key = ?", (cache.cache_key(facts),))
    rows: list[tuple[str]] = _run(lambda base: base.execute(*question).fetchall(), [])
    return _object(rows[0][0]) if rows else None


def remember(facts: Mapping[str, str], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Stores a choice and gives the one that counts: the first to be stored, so that all processes agree."""
    row = (cache.cache_key(facts), json.dumps(dict(facts)), json.dumps(dict(answer)), time.time())

    def store(base: sqlite3.Connection) -> str:
        base.execute("INSERT OR IGNORE INTO choices VALUES (?, ?, ?, ?)", row)
        return str(base.execute("SELECT answer FROM choices WHERE key = ?", row[:1]).fetchone()[0])

    return _object(_run(store, row[2], create=True)) or dict(answer)


def all_remembered() -> list[Remembered]:
    rows: list[tuple[str, str, float]] = _run(
        lambda base: base.execute("SELECT facts, answer, made FROM choices ORDER BY made, key").fetchall(), []
    )
    read = [(_object(facts), _object(answer), made) for facts, answer, made in rows]
    return [Remembered(facts, answer, made) for facts, answer, made in read if facts is not None and answer is not None]


def forget_all() -> int:
    """Removes all choices; gives how many there were."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a damaged file is removed too
        count = len(all_remembered())
    for path in (tuning_file(), *tuning_file().parent.glob(f"{FILE}-*")):
        path.unlink(missing_ok=True)
    return count


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _run(ask: Callable[[sqlite3.Connection], T], otherwise: T, *, create: bool = False) -> T:
    file = tuning_file()
    if not create and not file.exists():
        return otherwise
    try:
        return _ask(file, ask)
    except (OSError, sqlite3.OperationalError) as error:
        warnings.warn(
            f"The tuning cache {file} can't be used ({error}), so choices are not remembered; set ORTISAN_CACHE_DIR to "
            "a folder that can be written.",
            stacklevel=3,
        )
    except sqlite3.DatabaseError as error:
        aside = file.with_name(f"{FILE}-damaged-{time.time_ns()}")
        warnings.warn(
            f"The tuning cache {file} is damaged ({error}) and was moved to {aside}; its choices are made again.",
            stacklevel=3,
        )
        with contextlib.suppress(OSError):
            file.rename(aside)
            if create:
                with contextlib.suppress(sqlite3.Error):
                    return _ask(file, ask)
    return otherwise


def _ask(file: Path, ask: Callable[[sqlite3.Connection], T]) -> T:
    make_cache_folder()
    with contextlib.closing(sqlite3.connect(file, timeout=_PATIENCE_SECONDS)) as base, base:
        base.execute("PRAGMA synchronous = OFF")  # a power failure may cost the file, and no build waits for the disk
        base.execute(_TABLE)
        return ask(base)
