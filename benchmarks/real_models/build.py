"""`ortisan build` with default options in a process of its own, under a time limit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.real_models.results import Built
from ortisan.errors import ArtifactError
from ortisan.runtime.artifact import open_artifact

KILL_SECONDS = 180
_LONGEST_REASON = 200
_ERROR = "error:"


def build(model: Path, artifact: Path, inputs: Path | None = None, limit: float = KILL_SECONDS) -> Built:
    """Builds `artifact`; an error, a signal or a hang is told in the result."""
    shutil.rmtree(artifact, ignore_errors=True)
    given = ["--inputs", str(inputs)] if inputs is not None else []
    argv = [sys.executable, "-m", "ortisan", "build", str(model), "-o", str(artifact), "--json", *given]
    start = time.perf_counter()
    code, _, errors = run_limited(argv, limit)
    seconds = time.perf_counter() - start
    problem = why_ended(code, errors, limit)
    if problem:
        return Built(seconds, problem)
    try:
        manifest = open_artifact(artifact).manifest
    except ArtifactError as error:
        return Built(seconds, str(error))
    return Built(seconds, "", len(manifest["ops"]), float(manifest["flops_share"]), _reason(manifest))


def run_limited(argv: Sequence[str], limit: float) -> tuple[int | None, str, str]:
    """The exit code, None when the time was up, with what was printed to both streams.

    The process leads a group of its own, all of which is killed at the limit.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True) as child:
            code: int | None = None
            try:
                code = child.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def why_ended(code: int | None, errors: str, limit: float) -> str:
    """Why a process has no result, in a sentence; nothing when it ended well."""
    if code == 0:
        return ""
    if code is None:
        return f"killed after {limit:.0f} s"
    if code < 0 or code > 128:
        return f"died of {_signal_name(-code if code < 0 else code - 128)}"
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.startswith(_ERROR)]
    said = " ".join(lines[starts[-1] :]).removeprefix(_ERROR) if starts else " ".join(lines[-1:])
    return shortened(said) or f"exit code {code}"


def shortened(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST_REASON else words[: _LONGEST_REASON - 3] + "..."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _reason(manifest: Mapping[str, Any]) -> str:
    """What was given back, else the op that is left out most often and why."""
    given_back: Sequence[str] = manifest.get("given_back", ())
    if given_back:
        more = f" (and {len(given_back) - 1} more)" if len(given_back) > 1 else ""
        return shortened(f"given back: {given_back[0]}") + more
    counts: Counter[tuple[str, str]] = Counter()
    for group in manifest.get("left_out", ()):
        counts[group["op_type"], group["reason"]] += len(group["nodes"])
    if not counts:
        return ""
    ((op_type, reason), nodes), *_ = counts.most_common(1)
    return shortened(f"left out: {nodes} x {op_type}, {reason}")
