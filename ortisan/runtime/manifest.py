"""manifest.json: what an artifact folder holds and how it came about. Keys keep the order they are written in."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from ortisan.errors import ArtifactError
from ortisan.runtime.manifest_form import wrong_field

Manifest: TypeAlias = "dict[str, Any]"

MANIFEST = "manifest.json"
FORMAT = 2
_CHUNK = 1 << 20


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    text = json.dumps(plain(manifest), indent=2, ensure_ascii=True, allow_nan=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an artifact folder; an `ArtifactError` says what is wrong with it."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ArtifactError(f"'{folder}' {what}, expected a folder written by 'ortisan build'")
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(f"'{folder}' has no {MANIFEST}, so it was not written by 'ortisan build'") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactError(f"the {MANIFEST} of '{folder}' can't be read; build the artifact again") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise ArtifactError(f"the {MANIFEST} of '{folder}' is not one of Ortisan's; build the artifact again")
    if manifest["format"] != FORMAT:
        raise ArtifactError(
            f"'{folder}' has manifest format {manifest['format']}, this Ortisan reads {FORMAT}; build it again"
        )
    if (wrong := wrong_field(manifest)) is not None:
        raise ArtifactError(f"the {MANIFEST} of '{folder}' {wrong}; build the artifact again")
    return manifest


def plain(value: Any) -> Any:
    """What JSON can hold: numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return str(value)


def file_sizes(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Size of each file."""
    return {name: {"bytes": (folder / name).stat().st_size} for name in names}


def add_hashes(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What `file_sizes` gave, with the sha256 of each file."""
    return {name: {**facts, "sha256": sha256(folder / name)} for name, facts in files.items()}


def folder_hash(folder: Path) -> str:
    """One hash of the names and contents of a folder's files."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(folder)} {sha256(file)}\n".encode())
    return digest.hexdigest()


def sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
