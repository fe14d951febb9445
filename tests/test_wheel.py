"""The wheel without an extra serves an artifact: numpy, onnxruntime, no compiler and none of the compiler's packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ortisan
from tests.models.mlp import mlp

pytestmark = [pytest.mark.slow, pytest.mark.build]

ROOT = Path(__file__).parent.parent
SERVE = """
import sys, numpy, ortisan
session = ortisan.load(sys.argv[1])
numpy.save(sys.argv[3], session.run(None, dict(numpy.load(sys.argv[2])))[0])
assert not {"onnx", "onnx_ir", "onnxscript", "sympy", "jinja2"} & set(sys.modules)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an empty environment with the wheel in it."""
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", place, ROOT], check=True)
    subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
    found = place / "venv" / "bin" / "python"
    (wheel,) = place.glob("*.whl")
    subprocess.run([found, "-m", "pip", "install", "--quiet", wheel, "onnxruntime"], check=True)
    return found


def run(python: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """With a PATH that has no compiler, from a folder that has no checkout."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "CXX")}
    return subprocess.run(
        [str(python), *map(str, arguments)],
        env={**environment, "PATH": str(python.parent)},
        cwd=python.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_serves_an_artifact_built_elsewhere(python: Path, tmp_path: Path) -> None:
    artifact = ortisan.build(mlp(), tmp_path / "out", keep="all")
    x = {"x": np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)}
    names = [value.name for value in ortisan.load(artifact.folder).get_inputs()]
    assert names == list(x)
    np.savez(tmp_path / "x.npz", **x)
    done = run(python, "-c", SERVE, artifact.folder, tmp_path / "x.npz", tmp_path / "y.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), ortisan.load(artifact.folder).run(None, x)[0])


def test_what_needs_the_compiler_says_what_to_install(python: Path) -> None:
    said = run(
        python, "-c", "import ortisan\ntry: ortisan.build('m.onnx', 'out')\nexcept ortisan.OrtisanError as e: print(e)"
    )
    assert "pip install 'ortisan[compile]'" in said.stdout
    tool = run(python, "-m", "ortisan", "doctor")
    assert tool.returncode == 1
    assert "pip install 'ortisan[compile]'" in tool.stderr
    assert "Traceback" not in tool.stderr
