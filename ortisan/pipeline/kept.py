"""Artifacts that the PyTorch front keeps on disk, in `torch/` of a cache folder: which there are, and their end."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from ortisan.runtime.manifest import MANIFEST


@dataclass(frozen=True)
class KeptArtifact:
    """An artifact, the bytes of its files, and when it was used last."""

    folder: Path
    bytes: int
    used: float


def kept_folder(cache: Path) -> Path:
    return cache / "torch"


def all_kept(cache: Path) -> list[KeptArtifact]:
    """The artifacts, the one used longest ago first."""
    found = [_read(path.parent) for path in kept_folder(cache).glob(f"*/{MANIFEST}")]
    return sorted(found, key=lambda kept: (kept.used, kept.folder.name))


def forget_kept(cache: Path) -> int:
    """Removes all of them, and says how many there were; sessions that are open keep their files."""
    count = len(all_kept(cache))
    if kept_folder(cache).exists():
        shutil.rmtree(kept_folder(cache))
    return count


def _read(folder: Path) -> KeptArtifact:
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return KeptArtifact(folder, size, (folder / MANIFEST).stat().st_mtime)
