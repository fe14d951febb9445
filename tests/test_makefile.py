"""What needs a GPU says so in a sentence where there is none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SENTENCE = "There is no GPU on this machine (nvidia-smi lists none)"


@pytest.fixture
def without_gpu(tmp_path: Path) -> dict[str, str]:
    """An environment whose nvidia-smi finds nothing."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("goal", ["gpu-test", "bench-gpu"])
def test_make_refuses(goal: str, without_gpu: dict[str, str]) -> None:
    done = subprocess.run(["make", goal], cwd=ROOT, env=without_gpu, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert SENTENCE in done.stderr
    assert not (ROOT / ".venv-gpu").exists()


def test_the_benchmark_refuses(without_gpu: dict[str, str]) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu"]
    done = subprocess.run(command, cwd=ROOT, env=without_gpu, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().startswith(SENTENCE)


def test_the_environment_for_gpus_can_import_aitemplate() -> None:
    """AITemplate imports torch; the release is the one that is pinned for the other environment."""
    rules = (ROOT / "Makefile").read_text()
    gpu = rules[rules.index("$(GPU)/.dev:") : rules.index("gpu-test:")]
    assert re.search(r"install torch==([\d.]+)", gpu)
    assert len(set(re.findall(r"install torch==([\d.]+)", rules))) == 1
