"""docker/download.py against a hub on this machine: checksums, and going on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "docker" / "download.py"
WEIGHTS, CONFIG = os.urandom(3_000_000), b'{"a": 1}'


class Hub(BaseHTTPRequestHandler):
    cut, damage = False, False
    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        Hub.asked.append((self.path, self.headers.get("Range")))
        if self.path.startswith("/api/models/team/tiny/tree/main"):
            git = hashlib.sha1(f"blob {len(CONFIG)}\0".encode() + CONFIG, usedforsecurity=False).hexdigest()
            lfs = {"oid": hashlib.sha256(WEIGHTS).hexdigest()}
            listed = [{"type": "file", "path": "config.json", "size": len(CONFIG), "oid": git},
                      {"type": "file", "path": "readme.md", "size": 3, "oid": "-"},
                      {"type": "directory", "path": "onnx", "size": 0, "oid": "-"},
                      {"type": "file", "path": "onnx/model.onnx", "size": len(WEIGHTS), "oid": "-", "lfs": lfs}]  # fmt: skip
            return self.give(json.dumps(listed).encode())
        content = WEIGHTS if self.path.endswith("model.onnx") else CONFIG
        if Hub.damage:
            content = bytes(len(content))
        begin = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        end = len(content)
        if Hub.cut and content is WEIGHTS:
            Hub.cut, end = False, len(content) // 3
        return self.give(content[begin:end], len(content) - begin, 206 if begin else 200)

    def give(self, content: bytes, announced: int | None = None, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(announced if announced is not None else len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def address() -> Iterator[str]:
    Hub.asked, Hub.cut, Hub.damage = [], False, False
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def download(address: str, out: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_ENDPOINT": address}
    command = [sys.executable, str(SCRIPT), str(out), "team/tiny"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_files_are_complete_and_fetched_once(address: str, tmp_path: Path) -> None:
    done = download(address, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "team/tiny/onnx/model.onnx").read_bytes() == WEIGHTS
    assert (tmp_path / "team/tiny/config.json").read_bytes() == CONFIG
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["config.json", "model.onnx"]
    Hub.asked = []
    assert download(address, tmp_path).returncode == 0
    assert [path for path, _ in Hub.asked if "resolve" in path] == []


def test_what_was_begun_goes_on(address: str, tmp_path: Path) -> None:
    Hub.cut = True
    assert download(address, tmp_path).returncode == 0
    assert (tmp_path / "team/tiny/onnx/model.onnx").read_bytes() == WEIGHTS
    ranges = [begin for path, begin in Hub.asked if path.endswith("model.onnx")]
    assert ranges == [None, f"bytes={len(WEIGHTS) // 3}-"]


def test_a_wrong_checksum_is_told_and_leaves_nothing(address: str, tmp_path: Path) -> None:
    Hub.damage = True
    done = download(address, tmp_path)
    assert done.returncode == 1
    assert "the checksum is wrong" in done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
