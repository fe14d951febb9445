"""The build cache: entries appear whole or not at all, whoever else is writing."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import stat
import time
import warnings
from pathlib import Path

import pytest

from ortisan.codegen.tools import build_cache as cache
from ortisan.codegen.tools.cache_place import cache_folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "builds"


@pytest.fixture
def result(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "built").write_bytes(b"library")
    return {"lib.so": tmp_path / "built"}


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("ORTISAN_CACHE_DIR", "/o")
    assert cache_folder() == Path("/o")
    monkeypatch.delenv("ORTISAN_CACHE_DIR")
    assert cache_folder() == Path("/x/ortisan")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("/h/.cache/ortisan")


def test_what_was_stored_is_found(result: dict[str, Path]) -> None:
    assert cache.look_up("k", result) is None
    entry = cache.store("k", result)
    assert cache.look_up("k", result) == entry
    assert (entry / "lib.so").read_bytes() == b"library"


@pytest.mark.parametrize(
    "other", [{"a": "x", "b": "z"}, {"a": "xb", "": "y"}, {"a": "x"}, {"ab": "x", "b": "y"}, {"a": "", "b": "xy"}]
)
def test_keys_differ_with_any_part(other: dict[str, str]) -> None:
    parts = {"a": "x", "b": "y"}
    assert cache.cache_key(parts) == cache.cache_key(dict(reversed(parts.items())))
    assert cache.cache_key(parts) != cache.cache_key(other)


@pytest.mark.parametrize("damage", ["truncate", "remove", "index", "empty index", "file"])
def test_a_damaged_entry_counts_as_absent_and_is_replaced(folder: Path, result: dict[str, Path], damage: str) -> None:
    entry = cache.store("k", result)
    if damage == "truncate":
        (entry / "lib.so").write_bytes(b"libr")
    elif damage == "remove":
        (entry / "lib.so").unlink()
    elif damage == "index":
        (entry / "files.json").write_text("[1")
    elif damage == "empty index":
        (entry / "files.json").write_text("{}")
    else:
        shutil.rmtree(entry)
        entry.write_text("not a folder")
    assert cache.look_up("k", result) is None
    cache.store("k", result)
    assert cache.look_up("k", result) == entry
    assert [path.name for path in folder.iterdir()] == ["k"]


@pytest.mark.parametrize("place", ["cache", "builds"])
@pytest.mark.parametrize("how", ["everybody", "owner"])
def test_what_others_can_write_is_not_used(
    place: str, how: str, folder: Path, result: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = cache.store("k", result)
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    if how == "everybody":
        {"cache": folder.parent, "builds": folder}[place].chmod(0o777)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.warns(UserWarning, match=f"The cache {folder.parent} is not used, because "):
        assert cache.look_up("k", result) is None
    with warnings.catch_warnings():  # once is enough
        warnings.simplefilter("error")
        spare = cache.store("k", result)
        monkeypatch.undo()
    assert not spare.is_relative_to(folder.parent)
    assert spare != entry


def test_a_full_disk_leaves_no_entry(folder: Path, result: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        target.write_bytes(b"li")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copy", full)
    with pytest.raises(OSError, match="No space"):
        cache.store("k", result)
    assert list(folder.iterdir()) == []


def test_old_drafts_of_killed_processes_are_swept(folder: Path, result: dict[str, Path]) -> None:
    for name, age in (("draft-old", 2 * 24 * 3600), ("draft-new", 60)):
        (folder / name).mkdir(parents=True)
        os.utime(folder / name, (time.time() - age,) * 2)
    cache.store("k", result)
    assert sorted(path.name for path in folder.iterdir()) == ["draft-new", "k"]


def _store_often(root: Path, writer: int) -> None:
    source = root / f"built{writer}"
    source.write_bytes(bytes([writer]) * 100_000)
    for turn in range(20):
        entry = cache.store(f"k{turn}", {"lib.so": source})
        assert len(set((entry / "lib.so").read_bytes())) == 1


def test_processes_that_store_the_same_keys_agree(folder: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_store_often, args=(tmp_path, n)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"k{turn}" for turn in range(20))
    assert all(cache.look_up(f"k{turn}", ()) for turn in range(20))
