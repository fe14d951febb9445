"""The content-addressed build cache: a key names a folder of finished files, which appears all at once or not at all.

Any number of processes may read and write it at once; the first to finish a key wins and the others use what it stored.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ortisan.codegen.tools.cache_place import cache_folder, make_cache_folder

_INDEX = "files.json"
_ABANDONED_AFTER_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Build:
    """An entry: its key, the library or the object in it, the bytes of its files, and when it was made."""

    key: str
    library: str
    bytes: int
    made: float


def cache_key(parts: Mapping[str, str | bytes]) -> str:
    """A digest of named parts. It depends on names and contents, not on their order."""
    digest = hashlib.sha256()
    for name in sorted(parts):
        part = parts[name]
        content = part.encode() if isinstance(part, str) else part
        for field in (name.encode(), content):
            digest.update(len(field).to_bytes(8, "little"))
            digest.update(field)
    return digest.hexdigest()


def look_up(key: str, files: Iterable[str]) -> Path | None:
    """The folder stored under `key`; one that lacks any of these files, or whose files were damaged, is absent."""
    try:
        folder = _entry(key)
        index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        intact = set(files) <= index.keys() and all(_digest(folder / name) == index[name] for name in index)
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return None
    return folder if intact else None


def store(key: str, files: Mapping[str, Path]) -> Path:
    """Stores copies of `files` (name in the entry -> file) under `key`; gives the entry's folder.

    An `OSError` (no permission, disk full) leaves the cache as it was.
    """
    make_cache_folder()
    entry = _entry(key)
    entry.parent.mkdir(exist_ok=True)
    _sweep(entry.parent)
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=entry.parent))
    try:
        for name, source in files.items():
            shutil.copy(source, draft / name)
        index = {name: _digest(draft / name) for name in sorted(files)}
        (draft / _INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
        draft.chmod(0o755)
        _put_in_place(draft, entry, key, files)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return entry


def all_builds() -> list[Build]:
    """The entries, the oldest first. What another process removes meanwhile is left out."""
    found = []
    for folder in sorted(_entry("").glob("*")):
        with contextlib.suppress(OSError):
            if (folder / _INDEX).is_file():
                sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
                library = next((name for name in sorted(sizes) if name.startswith("lib") or name.endswith(".o")), "")
                found.append(Build(folder.name, library, sum(sizes.values()), folder.stat().st_mtime))
    return sorted(found, key=lambda build: (build.made, build.key))


def forget_builds() -> int:
    """Removes all entries, the logs of failed builds and the reports of bugs; gives how many entries there were."""
    count = len(all_builds())
    for folder in (_entry(""), cache_folder() / "logs", cache_folder() / "reports"):
        if folder.is_dir():
            shutil.rmtree(folder)
    return count


def _put_in_place(draft: Path, entry: Path, key: str, files: Iterable[str]) -> None:
    """Renames `draft` to `entry`, unless a good entry is there already; a damaged one makes way."""
    damaged = draft.with_name(draft.name + "-damaged")
    while True:
        try:
            draft.rename(entry)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        if look_up(key, files) is not None:
            return
        with contextlib.suppress(FileNotFoundError):
            entry.rename(damaged)
        _remove(damaged)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Removes drafts that killed processes left behind long ago."""
    for draft in folder.glob("draft-*"):
        with contextlib.suppress(OSError):
            if time.time() - draft.stat().st_mtime > _ABANDONED_AFTER_SECONDS:
                shutil.rmtree(draft, ignore_errors=True)


def _entry(key: str) -> Path:
    return cache_folder() / "builds" / key


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
