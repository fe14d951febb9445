"""Where the cache is: `$ORTISAN_CACHE_DIR`, else `$XDG_CACHE_HOME/ortisan`, else `~/.cache/ortisan`.

Libraries out of it are run, so a folder that others can write to is not used: a spare one that lives as long as the
process takes its place, and a warning says so.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import stat
import tempfile
import warnings
from pathlib import Path


def cache_folder() -> Path:
    """The folder to use, whether or not it exists yet."""
    folder = chosen_folder()
    reason = why_not_trusted(folder)
    return folder if reason is None else _spare(folder, reason)


def make_cache_folder() -> Path:
    """`cache_folder()`, made for this user alone if it is new."""
    folder = cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def chosen_folder() -> Path:
    """The folder that the environment names."""
    if chosen := os.environ.get("ORTISAN_CACHE_DIR"):
        return Path(chosen)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base, "ortisan")
    return Path("~/.cache/ortisan").expanduser()


def why_not_trusted(folder: Path) -> str | None:
    """Why somebody else could have put files there; None when nobody could, or nothing is there."""
    for place in (folder, folder / "builds"):
        try:
            status = place.stat()
        except OSError:
            continue
        if status.st_uid != os.geteuid():
            return f"'{place}' belongs to another user"
        if status.st_mode & stat.S_IWOTH:
            return f"everybody can write to '{place}'"
    return None


@functools.cache
def _spare(folder: Path, reason: str) -> Path:
    warnings.warn(
        f"The cache {folder} is not used, because {reason}; make it yours alone (chmod 700), or set ORTISAN_CACHE_DIR "
        "to a folder of your own.",
        stacklevel=4,
    )
    spare = Path(tempfile.mkdtemp(prefix="ortisan-cache-"))
    atexit.register(shutil.rmtree, spare, ignore_errors=True)
    return spare
