"""Objects that many builds share: compiled by the first of them, found in the build cache by the others."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from ortisan.codegen.tools import build_cache as cache


def take_objects(keys: Mapping[str, str], folder: Path) -> Path:
    """Fills a new folder with the objects that the cache has, each called as its source with ".o" behind it."""
    folder.mkdir()
    for source, key in keys.items():
        kept = cache.look_up(key, [f"{source}.o"])
        if kept is not None:
            shutil.copy(kept / f"{source}.o", folder)
    return folder


def keep_objects(keys: Mapping[str, str], build: Path) -> None:
    """Stores the objects that a build has just compiled. A cache that can't be written is no reason to fail."""
    for source, key in keys.items():
        compiled = next(build.glob(f"CMakeFiles/*.dir/{source}.o"), None)
        if compiled is not None:
            with contextlib.suppress(OSError):
                cache.store(key, {compiled.name: compiled})
