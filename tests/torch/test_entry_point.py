"""torch.compile finds the backend by its name, through the entry point, with nothing imported before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib

pytestmark = [pytest.mark.torch, pytest.mark.build]
ROOT = Path(__file__).parents[2]

PROGRAM = """
import torch
from tests.tolerances import APPROXIMATE
module = torch.nn.Linear(4, 3)
x = torch.ones(2, 4)
with torch.no_grad():
    fast = torch.compile(module, backend="ortisan", options={"strict": True})
    assert torch.allclose(fast(x), module(x), atol=APPROXIMATE)
    try:
        torch._dynamo.reset()
        torch.compile(module, backend="ortisan", options={"speed": 11})(x)
    except Exception as error:
        print(error)
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_torch_finds_the_backend(tmp_path: Path) -> None:
    """An installed package is a folder of metadata on the path: the entry points are those of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["entry-points"]["torch_dynamo_backends"]
    metadata = tmp_path / "ortisan_under_test-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ortisan-under-test\nVersion: 0\n")
    lines = [f"{name} = {target}" for name, target in points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[torch_dynamo_backends]", *lines]) + "\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "there is no option 'speed'" in run.stdout
