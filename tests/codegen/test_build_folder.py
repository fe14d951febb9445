"""The folder that libraries are built in: its path, and what killed builds leave behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ortisan.codegen.tools import build_folder as folders
from ortisan.errors import ToolchainError


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def aged(folder: Path, seconds: float) -> Path:
    then = time.time() - seconds
    os.utime(folder, (then, then))
    return folder


def test_it_is_gone_afterwards(place: Path) -> None:
    with folders.build_folder() as folder:
        assert folder.parent == place
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("character", [";", "$", '"', "\n", "*"])
def test_a_path_that_cmake_would_not_take_is_not_used(
    character: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = place / f"a{character}b"
    odd.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(odd))
    with folders.build_folder() as folder:
        assert character not in str(folder)
        assert folder.is_dir()
    assert not folder.exists()


def test_no_path_that_cmake_would_take(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place / "a;b"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with (
        pytest.raises(ToolchainError, match=r"a;b', because of a character in the path; set TMPDIR"),
        folders.build_folder(),
    ):
        pass


def test_a_full_temporary_folder_is_one_sentence(place: Path) -> None:
    with (
        pytest.raises(ToolchainError, match=rf"can't be built in {place} \(No space left.*; set TMPDIR"),
        folders.build_folder(),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(place.iterdir()) == []


def test_what_a_killed_build_left_is_swept(place: Path) -> None:
    script = (
        "import sys, tempfile, time\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "from ortisan.codegen.tools.build_folder import build_folder\n"
        "with build_folder() as folder: print(folder, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script, place], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = aged(Path(process.stdout.readline().strip()), 3600)
        with folders.build_folder():
            assert left.is_dir(), "its process lives"
        process.kill()
    with folders.build_folder():
        assert not left.exists()


def test_only_old_folders_of_ours_are_swept(place: Path) -> None:
    names = {"ortisan-build-new": 5, "ortisan-model-a": 3600, "ortisan-model-b": 200_000, "somebody": 200_000}
    for name, age in names.items():
        (place / name).mkdir()
        aged(place / name, age)
    with folders.build_folder() as folder:
        left = {item.name for item in place.iterdir() if item != folder}
    assert left == {"ortisan-build-new", "ortisan-model-a", "somebody"}
