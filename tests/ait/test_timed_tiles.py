"""Timing tiles, with a driver, a make and profilers that stand in: what AITemplate is told, asked for, and what is said."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

import ortisan
from ortisan.codegen.ait.adapter import Adapter
from ortisan.codegen.ait.gpus import timing_gpus, why_not_run, why_not_timed
from ortisan.codegen.backend import parse_target
from ortisan.errors import ToolchainError
from ortisan.pipeline.options import Options
from tests.ait.arithmetic import PLAIN, THREE_TIMES_TF32, arithmetic
from tests.ait.gpu_models import gpu_models
from tests.gpu.test_gpu_artifact import mlp
from tests.gpu.test_gpu_toolchain import fake_nvcc

MAKE = """#!{python}
# Writes a profiler for each target of a Makefile: a script that says how long each kernel of its sources took.
import os, re, sys
if "clean" in sys.argv:
    sys.exit(0)
if os.environ.get("BROKEN_MAKE"):
    print("gemm.cu(3): error: curand_kernel.h: No such file or directory")
    sys.exit(2)
folder, makefile = sys.argv[sys.argv.index("-C") + 1], sys.argv[sys.argv.index("-f") + 1]
for target, sources in re.findall(r"^(\\S+): ((?:\\S+\\.cu ?)+)$", open(os.path.join(folder, makefile)).read(), re.M):
    text = "".join(open(os.path.join(folder, source)).read() for source in sources.split())
    names = sorted(set(re.findall(r'"(cutlass_\\w+)"', text)))
    place = os.path.join(folder, target)
    with open(place, "w") as file:
        if os.environ.get("BROKEN_GPU"):
            file.write("#!/bin/sh\\necho 'CUDA error: no kernel image is available' >&2\\nexit 1\\n")
        else:
            lines = [f"echo OP:{{name}},TIME:{{1 if '128x64' in name else 2}}.5,WS:0" for name in names]
            file.write("\\n".join(["#!/bin/sh", *lines, "echo TIME:1.5,WS:0" if not names else "", ""]))
    os.chmod(place, 0o755)
    print("nvcc -o", target, sources)
"""


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(stat.S_IRWXU)


def driver(folder: Path, monkeypatch: pytest.MonkeyPatch, *gpus: tuple[str, str]) -> None:
    """An nvidia-smi that lists these: name and capability."""
    names, capabilities = ("\\n".join(column) for column in zip(*gpus, strict=True)) if gpus else ("", "")
    text = f"""#!/bin/sh
case "$*" in
  *query-gpu=compute_cap*) printf '{capabilities}\\n' ;;
  *query-gpu=name*) printf '{names}\\n' ;;
  *query-gpu=gpu_name*) printf 'name\\n{names}\\n' ;;
  *) printf 'GPU 0: {names}\\n' ;;
esac
"""
    program(folder, "nvidia-smi", text)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


A100, H100, T4 = ("NVIDIA A100-SXM4-80GB", "8.0"), ("NVIDIA H100", "9.0"), ("Tesla T4", "7.5")


def test_tiles_are_timed_on_gpus_of_the_targets_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path, monkeypatch, H100, A100, ("NVIDIA L4", "8.9"), T4)
    assert timing_gpus("80") == (1, 2)
    assert timing_gpus("90") == (0,)
    assert timing_gpus("75") == (3,)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert timing_gpus("80") == (2,)
    assert timing_gpus("75") == ()
    assert why_not_timed("75").endswith("(the driver lists sm_90, sm_80, sm_89, sm_75)")


def test_what_a_gpu_can_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path, monkeypatch, A100)
    assert why_not_run(["80"]) is None
    assert why_not_run(["75", "90"]) is None
    assert why_not_run(["90"]) == "this machine's GPU (sm_80) can't run code for sm_90"
    driver(tmp_path, monkeypatch)
    assert why_not_run(["80"]) == "this machine has no GPU"


@pytest.fixture
def timing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An A10, which AITemplate does not know by name, a CUDA compiler and a make."""
    driver(tmp_path / "bin", monkeypatch, ("NVIDIA A10", "8.6"))
    program(tmp_path / "bin", "make", MAKE.format(python=sys.executable))
    nvcc = fake_nvcc(tmp_path / "cuda", "13.0")
    (tmp_path / "cuda" / "include").mkdir()
    (tmp_path / "cuda" / "include" / "curand_kernel.h").touch()
    monkeypatch.setenv("CUDACXX", str(nvcc))
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(Adapter, "_made", {})
    return tmp_path


def compiled(said: list[str] | None = None, model: Any = None, **options: Any) -> Any:
    dims = {"batch": (1, 64)}
    tell = (said if said is not None else []).append
    (plan,) = ortisan.compile(
        model or mlp(), target="cuda:80", dims=dims, on_progress=tell, tune="auto", **options
    ).plans
    return plan.model


@pytest.mark.aitemplate
def test_the_fastest_tile_of_the_arithmetic_is_taken(timing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    for options, wanted in (({}, THREE_TIMES_TF32), ({"tf32": True}, PLAIN), ({}, THREE_TIMES_TF32)):
        monkeypatch.setattr(Adapter, "_made", {})
        model = compiled(said, **options)
        assert model.profiled
        assert all("128x64" in note for note in model.notes), model.notes
        assert all(operations == {wanted} for operations in arithmetic(model.files).values())
    assert any(step.startswith("compiled profiler 1") for step in said)
    assert any(step.startswith("timing gemm_rcr") for step in said)
    assert len(list((timing / "cache" / "profiles").iterdir())) == 2, "times of each arithmetic are kept apart"


@pytest.mark.aitemplate
def test_norms_and_softmaxes_are_taken_on_gpus_that_aitemplate_does_not_know(timing: Path) -> None:
    """With products timed, AITemplate asked what GPU this is, and refused what depends on it."""
    bert = gpu_models()[0]
    (plan,) = ortisan.compile(bert.model, target="cuda:80", dims=dict(bert.dims), tune="auto").plans
    assert plan.model.profiled
    kinds = {name.rpartition("_")[0] for name in plan.model.files}
    assert {"layernorm", "softmax"} <= kinds


@pytest.mark.aitemplate
@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ("BROKEN_MAKE", r"can't be compiled: gemm.cu\(3\): error: curand_kernel.h.*tune='off'"),
        ("BROKEN_GPU", r"can't be timed on this machine's GPU: .*no kernel image is available.*tune='off'"),
    ],
)
def test_what_goes_wrong_is_told(timing: Path, monkeypatch: pytest.MonkeyPatch, broken: str, sentence: str) -> None:
    monkeypatch.setenv(broken, "1")
    with pytest.raises(ToolchainError, match=sentence):
        compiled()


@pytest.mark.aitemplate
def test_another_kind_of_gpu_times_nothing(timing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(timing / "bin", monkeypatch, H100)
    compilation = ortisan.compile(mlp(), target="cuda:80", dims={"batch": (1, 64)}, tune="auto")
    assert not compilation.plans[0].model.profiled
    described = parse_target("cuda:80").describe(compilation.plans, Options(tune="auto"), built=False)
    (warning,) = described["warnings"]
    assert warning.endswith("because no visible GPU here is of sm_80's kind (the driver lists sm_90)")
