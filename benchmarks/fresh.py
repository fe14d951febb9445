"""Measures what only a new process shows: `load` of a session with its private memory, and `build` with its cache.

Run as a program of its own; prints one JSON object. The functions `measure_load` and `measure_build` start it.

Pages of a mapped file count as private as long as no other process maps them. So a session's private memory is measured
beside another process that has the same session open (`hold`), as it is when several workers serve one model.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def measure_load(
    model: Path, library: Path | None, feeds: Path, times: int, entries: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Median milliseconds to open a session, and MB of private memory after one run; `base_mb` is that before.

    `entries` are session config entries.
    """
    arguments = [str(model), str(library or ""), str(feeds), json.dumps(dict(entries or {}))]
    with subprocess.Popen(_argv("hold", arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        if holder.stdout is None or not holder.stdout.readline():
            raise RuntimeError(f"a new process can't run '{model}'")
        found = [_start("load", arguments, {}) for _ in range(times)]
        holder.communicate()
    return {key: statistics.median(one[key] for one in found) for key in found[0]}


def measure_build(model: Path, folder: Path, name: str, feeds: Path, *, cache: str, builds: Path) -> float:
    """Seconds that `ortisan.build` takes with `builds` as the folder of earlier builds, verification included.

    `cache` is where a decoder's keys and values go, as in `ortisan.build`.
    """
    arguments = [str(model), str(folder), name, str(feeds), cache]
    return float(_start("build", arguments, {"ORTISAN_CACHE_DIR": str(builds)})["seconds"])


def _argv(kind: str, arguments: list[str]) -> list[str]:
    return [sys.executable, "-I", __file__, kind, *arguments]


def _start(kind: str, arguments: list[str], variables: dict[str, str]) -> Any:
    done = subprocess.run(
        _argv(kind, arguments),
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        check=True,
        encoding="utf-8",
    )
    return json.loads(done.stdout.splitlines()[-1])


def _private_mb() -> float:
    text = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    kilobytes = (int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_"))
    return sum(kilobytes) / 1024


def _open(model: str, library: str, entries: str) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    for key, value in json.loads(entries).items():
        options.add_session_config_entry(key, value)
    if library:
        options.register_custom_ops_library(library)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _read(feeds: str) -> Any:
    import numpy as np

    with np.load(feeds) as archive:
        return dict(archive)


def _load(model: str, library: str, feeds: str, entries: str) -> dict[str, float]:
    importlib.import_module("onnxruntime")
    inputs = _read(feeds)
    base = _private_mb()
    start = time.perf_counter()
    session = _open(model, library, entries)
    loaded = time.perf_counter()
    session.run(None, inputs)
    return {"ms": 1e3 * (loaded - start), "private_mb": _private_mb(), "base_mb": base}


def _hold(model: str, library: str, feeds: str, entries: str) -> dict[str, float]:
    """Keeps a session open until standard input ends."""
    session = _open(model, library, entries)
    session.run(None, _read(feeds))
    print("ready", flush=True)
    sys.stdin.read()
    return {}


def _build(model: str, folder: str, name: str, feeds: str, cache: str) -> dict[str, float]:
    import ortisan

    start = time.perf_counter()
    ortisan.build(model, folder, name=name, inputs=feeds, keep="all", cache=cache)
    return {"seconds": time.perf_counter() - start}


_KINDS: dict[str, Callable[..., dict[str, float]]] = {"load": _load, "hold": _hold, "build": _build}

if __name__ == "__main__":
    print(json.dumps(_KINDS[sys.argv[1]](*sys.argv[2:])))
