"""Downloads models of a hub, by name; sizes and checksums are the hub's, and what was begun goes on.

    download.py /data bert-base-uncased gpt2@main

HF_ENDPOINT names another hub, HF_TOKEN is sent to it. A file is kept under its name once its SHA-256 is right; files of
which the hub has none (small ones) are checked by their git hash.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HUB = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
WANTED = (".json", ".txt", ".model", ".safetensors", ".onnx", ".onnx_data")
TRIES, CHUNK = 5, 1 << 20


@dataclass(frozen=True)
class File:
    """A file of a model: where it is, its size, and its SHA-256 or else its git hash."""

    path: str
    address: str
    size: int
    sha256: str | None
    git: str

    def is_right(self, place: Path) -> bool:
        if place.stat().st_size != self.size:
            return False
        digest = (
            hashlib.sha256() if self.sha256 else hashlib.sha1(f"blob {self.size}\0".encode(), usedforsecurity=False)
        )
        with place.open("rb") as file:
            while block := file.read(CHUNK):
                digest.update(block)
        return digest.hexdigest() == (self.sha256 or self.git)


def ask(address: str, begin: int = 0) -> Any:
    headers = {"Range": f"bytes={begin}-"} if begin else {}
    if token := os.environ.get("HF_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    return urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=60)


def files_of(name: str, revision: str) -> Iterator[File]:
    with ask(f"{HUB}/api/models/{name}/tree/{revision}?recursive=true") as answer:
        listed = json.load(answer)
    for entry in listed:
        if entry["type"] == "file" and entry["path"].endswith(WANTED):
            sha256 = entry.get("lfs", {}).get("oid")
            address = f"{HUB}/{name}/resolve/{revision}/{entry['path']}"
            yield File(entry["path"], address, entry["size"], sha256, entry["oid"])


def fetch(file: File, folder: Path) -> None:
    """Goes on where an earlier attempt stopped."""
    place = folder / file.path
    part = place.with_name(place.name + ".part")
    if place.is_file() and file.is_right(place):
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    for left in reversed(range(TRIES)):
        try:
            _append(file, part)
            break
        except (OSError, urllib.error.URLError) as error:
            if left == 0:
                sys.exit(f"{file.address}: {error}; run it again to go on")
            time.sleep(1)
    if not file.is_right(part):
        part.unlink()
        sys.exit(f"{file.address}: the checksum is wrong; run it again")
    part.replace(place)


def _append(file: File, part: Path) -> None:
    begin = part.stat().st_size if part.exists() else 0
    if begin == file.size:
        return
    with ask(file.address, begin) as answer, part.open("ab" if answer.status == 206 else "wb") as out:
        while block := answer.read(CHUNK):
            out.write(block)
            print(f"\r{file.path} {out.tell() / max(file.size, 1):.0%}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if part.stat().st_size != file.size:
        raise OSError(f"{part.stat().st_size} of {file.size} bytes came")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder to write to")
    parser.add_argument("models", nargs="+", metavar="NAME[@REVISION]")
    options = parser.parse_args()
    for model in options.models:
        name, _, revision = model.partition("@")
        for file in files_of(name, revision or "main"):
            fetch(file, options.out / name)
        print(options.out / name)


if __name__ == "__main__":
    main()
