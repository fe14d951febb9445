"""What CMake finds out about a compiler, which takes longer than the rest of configuring: found out once a machine.

CMake writes it to CMakeFiles/VERSION/*.cmake, and takes such files for its own when the platform counts as initialized.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from ortisan.codegen.tools import build_cache as cache

_FILE = "detected.json"


def detection_key(cmake: Path, parts: Mapping[str, str]) -> str:
    """`parts` is all that a build depends on beside its sources."""
    found = cmake.stat()
    return cache.cache_key({**parts, "detected by": f"{cmake} {found.st_size} {found.st_mtime_ns}"})


def take_detection(key: str, build: Path) -> list[str]:
    """Puts what was found out into a build folder that is not configured yet; gives the arguments of CMake for it."""
    entry = cache.look_up(key, [_FILE])
    if entry is None:
        return []
    for name, text in json.loads((entry / _FILE).read_text(encoding="utf-8")).items():
        file = build / "CMakeFiles" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return ["-DCMAKE_PLATFORM_INFO_INITIALIZED=1"]


def keep_detection(key: str, build: Path, work: Path) -> None:
    """Stores what a configured build folder has. A cache that can't be written is no reason to fail."""
    folder = build / "CMakeFiles"
    found = {str(file.relative_to(folder)): file.read_text(encoding="utf-8") for file in folder.glob("[0-9]*/*.cmake")}
    if found and not any(str(work) in text for text in found.values()):
        kept = work / _FILE
        kept.write_text(json.dumps(found), encoding="utf-8")
        with contextlib.suppress(OSError):
            cache.store(key, {_FILE: kept})
