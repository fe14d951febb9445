"""Output folders: written beside their place and renamed into it, so that a killed run leaves no half artifact."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import glob
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ortisan.errors import ArtifactError
from ortisan.runtime.exchange import exchange

_MANIFEST = "manifest.json"
_MARKS = (_MANIFEST, "src/CMakeLists.txt")
"""A folder that holds one of these was made by Ortisan and may be replaced, unless other files joined them."""
_ALWAYS_OURS = (_MANIFEST, "src", "departures")
_GENERATED = ("lib*.so", "*_binding*.so")
_ABANDONED_AFTER_SECONDS = 24 * 3600


@contextmanager
def staged_folder(place: Path) -> Iterator[Path]:
    """Gives an empty folder; when the block ends well it becomes `place`, else `place` stays as it was.

    Where `place` is a link to a folder, that folder is replaced.
    """
    place = _real(place)
    check_replaceable(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _bring_back(place)
        _sweep(place)
        staged = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".partial", dir=place.parent))
    except OSError as error:
        raise ArtifactError(f"'{place}' can't be written: {reason(error)}") from error
    try:
        staged.chmod(0o755)
        yield staged
        _swap(staged, place)
    except OSError as error:
        raise ArtifactError(f"'{place}' can't be written: {reason(error)}") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def check_replaceable(place: Path) -> None:
    """Raises `ArtifactError` when a folder can't be written there, before any work is done."""
    with _alone_in(_real(place).parent):
        _check_replaceable(place, _real(place).parent)


def _real(place: Path) -> Path:
    """The absolute path; of a link, what it points to."""
    path = Path(os.path.abspath(place))
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _check_replaceable(place: Path, parent: Path) -> None:
    if place.exists() and not place.is_dir():
        raise ArtifactError(f"'{place}' is a file; name a folder to write to")
    entries = sorted(item.name for item in place.iterdir()) if place.is_dir() else []
    if entries and not any((place / mark).exists() for mark in _MARKS):
        raise ArtifactError(f"'{place}' exists and was not made by Ortisan; name another folder, or remove it")
    foreign = [name for name in entries if not _is_ours(name, _recorded_files(place))]
    if foreign:
        raise ArtifactError(
            f"'{place}' holds '{foreign[0]}', which Ortisan did not write and would remove; name another folder, or "
            "move the file"
        )
    above = place if place.exists() else next(each for each in (parent, *parent.parents) if each.exists())
    if not above.is_dir():
        raise ArtifactError(f"'{above}' is a file, so '{place}' can't be made inside it")
    if not os.access(parent if place.exists() else above, os.W_OK):
        raise ArtifactError(f"'{place}' can't be written: '{above}' is read-only")


def _recorded_files(place: Path) -> frozenset[str]:
    """The files that the manifest of a folder lists, as far as it can be read."""
    try:
        manifest = json.loads((place / _MANIFEST).read_text(encoding="utf-8"))
        return frozenset([*manifest["files"], manifest["library"] or _MANIFEST])
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def _is_ours(name: str, recorded: frozenset[str]) -> bool:
    return name in _ALWAYS_OURS or name in recorded or any(fnmatch.fnmatch(name, form) for form in _GENERATED)


def _sweep(place: Path) -> None:
    """Removes what killed runs left beside this place long ago."""
    for item in place.parent.glob(f".{glob.escape(place.name)}.*"):
        if item.suffix == ".partial" or (item.suffix == ".old" and place.exists()):
            with contextlib.suppress(OSError):
                if time.time() - item.stat().st_mtime > _ABANDONED_AFTER_SECONDS:
                    shutil.rmtree(item, ignore_errors=True)


def _bring_back(place: Path) -> None:
    """Puts back what a run took away that was killed between the two renames of `_swap_in_two`."""
    with _alone_in(place.parent):
        for old in sorted(place.parent.glob(f".{glob.escape(place.name)}.*.old")):
            if not place.exists() and (old / place.name).is_dir():
                (old / place.name).rename(place)
                old.rmdir()


def _swap(staged: Path, place: Path) -> None:
    """Puts a folder in its place; `staged` is what was there before, if there was something."""
    with _alone_in(place.parent):
        if not place.exists():
            staged.rename(place)
            return
        if exchange(staged, place):
            return
    _swap_in_two(staged, place)


def _swap_in_two(staged: Path, place: Path) -> None:
    """What was there before is there again when that fails or is interrupted."""
    old = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".old", dir=place.parent))
    before = old / place.name
    try:
        with _alone_in(place.parent):
            try:
                if place.exists():
                    place.rename(before)
                staged.rename(place)
            except BaseException:
                if before.exists() and not place.exists():
                    before.rename(place)
                raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One run at a time looks at what is in this folder or swaps it; on file systems without locks, all do."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Writes files (path in the folder -> content)."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def reason(error: OSError) -> str:
    full = error.errno == errno.ENOSPC or re.search(r"\d+ requested and \d+ written", str(error))  # the words of numpy
    return "the disk is full" if full else (error.strerror or str(error)).lower()
