"""build --verify emulate and verify --emulate: the artifact's own kernels, executed from their PTX, against ONNX Runtime."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import ortisan
from ortisan.errors import OptionError
from ortisan.pipeline.emulate import SMALL
from tests.gpu.test_gpu_artifact import mlp


@pytest.mark.build
def test_other_targets_have_nothing_to_emulate(tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    artifact = ortisan.build(tmp_path / "mlp.onnx", tmp_path / "out", keep="all", tune="off", quick=True)
    with pytest.raises(OptionError, match="there is nothing to emulate for the target cpu"):
        ortisan.verify(artifact, emulate=True)


@pytest.mark.aitemplate
@pytest.mark.nvcc
@pytest.mark.build
@pytest.mark.parametrize("options", [[], ["--precision", "fp16"]], ids=["fp32", "fp16"])
def test_an_artifact_agrees_with_onnx_runtime(options: list[str], tmp_path: Path) -> None:
    """By the command line in a process of its own, which the runtime is loaded into."""
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    build = ["build", str(tmp_path / "mlp.onnx"), "-o", str(tmp_path / "out"), "--target", "cuda:80"]
    build += ["--dim", "batch=1:64", "--verify", "emulate", *options]
    for command in (build, ["verify", str(tmp_path / "out"), "--emulate"]):
        done = subprocess.run(
            [sys.executable, "-m", "ortisan", *command, "--json"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["verified"] == "emulated (PTX, sm_80)"
        figures = told.get("verification", told)["figures"]
        assert {figure["case"] for figure in figures} == {"batch=1", f"batch={SMALL}"}
        assert all(0 < figure["difference"]["max_rel"] < (1e-2 if options else 1e-5) for figure in figures)
