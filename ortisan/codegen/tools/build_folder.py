"""A folder to build in: gone afterwards, and swept by a later build when its process was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ortisan.codegen.tools.cache_place import cache_folder
from ortisan.errors import ToolchainError

_PREFIX = "ortisan-build-"
_OTHERS = ("ortisan-model-", "ortisan-values-", "ortisan-timing-", "ortisan-ait-")
"""Folders that nobody holds a lock on."""
_FRESH_SECONDS = 60
_ABANDONED_AFTER_SECONDS = 24 * 3600
_UNTAKEN = re.compile(r"""[;"'`$#%&*?<>|\\\n\r\t\[\](){}]""")
"""What CMake, Ninja or a compiler would take for something else in a path."""


@contextlib.contextmanager
def build_folder() -> Iterator[Path]:
    """An `OSError` inside means that it can't hold the build, and is told as a `ToolchainError`."""
    place = _place()
    try:
        _sweep(place)
        with (
            tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place, ignore_cleanup_errors=True) as folder,
            _held(Path(folder)),
        ):
            yield Path(folder)
    except OSError as error:
        raise ToolchainError(
            f"The library can't be built in {place} ({error.strerror or error}); "
            "set TMPDIR to a folder that can be written and has room."
        ) from error


def _place() -> Path:
    """The temporary folder, or another one where its path is not one that the tools take."""
    wanted = Path(tempfile.gettempdir())
    for place in (wanted, Path("/tmp"), Path("/var/tmp"), cache_folder()):
        if not _UNTAKEN.search(str(place)) and place.is_dir() and os.access(place, os.W_OK):
            return place
    raise ToolchainError(
        f"CMake can't build in {str(wanted)!r}, because of a character in the path; set TMPDIR to another folder."
    )


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Holds a lock on the folder, which says to others that its process lives."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _sweep(place: Path) -> None:
    """Removes what killed builds of this user left."""
    for folder in place.glob("ortisan-*-*"):
        if folder.name.startswith((_PREFIX, *_OTHERS)):
            with contextlib.suppress(OSError):
                status = folder.lstat()
                age = time.time() - status.st_mtime
                if status.st_uid == os.geteuid() and _is_abandoned(folder, age):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path, age: float) -> bool:
    if not folder.name.startswith(_PREFIX) or age < _FRESH_SECONDS:
        return age > _ABANDONED_AFTER_SECONDS
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return age > _ABANDONED_AFTER_SECONDS
    finally:
        os.close(handle)
    return True
