"""Output folders: written beside their place and renamed into it, so that a killed run leaves no half artifact."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ortisan.errors import ArtifactError

_OURS = ("manifest.json", "src/CMakeLists.txt")
"""A folder that holds one of these was made by Ortisan and may be replaced."""


@contextmanager
def staged_folder(place: Path) -> Iterator[Path]:
    """Gives an empty folder; when the block ends well it becomes `place`, else `place` stays as it was."""
    place = Path(os.path.abspath(place))
    check_replaceable(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
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
    if place.exists() and not place.is_dir():
        raise ArtifactError(f"'{place}' is a file; name a folder to write to")
    if place.is_dir() and any(place.iterdir()) and not any((place / mark).exists() for mark in _OURS):
        raise ArtifactError(f"'{place}' exists and was not made by Ortisan; name another folder, or remove it")
    above = place if place.exists() else next(parent for parent in place.absolute().parents if parent.exists())
    if not above.is_dir():
        raise ArtifactError(f"'{above}' is a file, so '{place}' can't be made inside it")
    if not os.access(place.parent if place.exists() else above, os.W_OK):
        raise ArtifactError(f"'{place}' can't be written: '{above}' is read-only")


def _swap(staged: Path, place: Path) -> None:
    if not place.exists():
        staged.rename(place)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".old", dir=place.parent))
    place.rename(old / place.name)
    try:
        staged.rename(place)
    except OSError:
        (old / place.name).rename(place)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def reason(error: OSError) -> str:
    return "the disk is full" if error.errno == errno.ENOSPC else (error.strerror or str(error)).lower()
