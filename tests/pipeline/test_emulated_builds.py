"""build(verify="emulate"): what is told, refused, left out and estimated, with a library for this CPU in a twin's place.

tests/gpu/test_emulated_gpu.py has real kernels.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import ortisan
from ortisan.checks.isolated import Isolated
from ortisan.codegen.ait.backend import CudaBackend
from ortisan.codegen.backend import BACKENDS, Kind, PlanOptions, Sources, Twin, parse_target
from ortisan.codegen.cpu.backend import CpuBackend
from ortisan.codegen.cpu.isa import find_isa
from ortisan.emulator.device import Counters
from ortisan.emulator.fatbin import Part
from ortisan.errors import ArtifactError, EmulationError, OptionError, ToolchainError
from ortisan.pipeline import emulate
from ortisan.pipeline.emulate import SMALL, Emulator, small_dims
from ortisan.pipeline.estimate import Estimate
from tests.models.mlp import mlp
from tests.pipeline import faults
from tests.pipeline.fault_models import three_parts
from tests.test_cli import run

LAUNCHED = {
    "_Z5gemm1": ("gemm<A>", Counters(2, 8, 90, 4, 1500, 300)),
    "_Z4norm": ("norm", Counters(1, 1, 7, 0, 20, 10)),
}
"""Two kernels."""


class PretendBackend(CpuBackend):
    """Code for this CPU that has to be emulated."""

    def __str__(self) -> str:
        return "pretend"

    def check(self, options: PlanOptions) -> None:
        pass

    def obstacle(self) -> str:
        return "this machine has no GPU"

    def emulated(self) -> str:
        return "80"

    def twin(self, sources: Sources, *, name: str, on_progress: Any = None) -> Twin:
        built = self.build(sources, name=name, on_progress=on_progress)
        return Twin(built, built.library, built.library)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """The PTX that the libraries have."""
    found = [Part("80", "PTX")]
    monkeypatch.setitem(BACKENDS, "pretend", Kind(lambda detail: PretendBackend(find_isa("native")), "pretend"))
    monkeypatch.setattr(emulate, "ptx_of", lambda library: found)
    device = SimpleNamespace(use=lambda programs: None, reset_counters=lambda: None, kernel_counters=lambda: LAUNCHED)
    monkeypatch.setattr(emulate, "open_device", lambda say: device)
    monkeypatch.setattr(emulate, "translate", lambda text: text)
    runtime = SimpleNamespace(ortisan_cuda_watch=lambda watch: None, ortisan_cuda_refusals=lambda: 0)
    monkeypatch.setattr(emulate, "_RUNTIMES", [runtime])
    return found


def build(model: onnx.ModelProto, folder: Path, **options: Any) -> ortisan.Artifact:
    return ortisan.build(model, folder, target="pretend", tune="off", verify="emulate", **options)


@pytest.mark.build
def test_it_is_told_how_it_was_verified(parts: list[Part], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    command = ["build", tmp_path / "mlp.onnx", "-o", tmp_path / "out", "--target", "pretend", "--tune", "off"]
    code, shown, complaint = run(*command, "--verify", "emulate", "--dim", "batch=1:64")
    assert code == 0, complaint
    shown = " ".join(shown.split())
    assert "The compiled model, emulated (PTX, sm_80), agrees with onnxruntime" in shown
    assert "Not timed: this machine has no GPU." in shown
    artifact = ortisan.build(mlp(), tmp_path / "again", target="pretend", verify="emulate", dims={"batch": (1, 64)})
    assert "emulated)" in repr(artifact)
    manifest = artifact.manifest
    assert manifest["verified"] == "emulated (PTX, sm_80)"
    assert manifest["verification"]["passed"]
    assert {figure["case"] for figure in manifest["verification"]["figures"]} == {"batch=1", f"batch={SMALL}"}
    assert manifest["bench"] is None
    assert manifest["options"]["verify"] == "emulate"
    assert ortisan.verify(artifact, model=mlp(), emulate=True).to_json()["verified"] == "emulated (PTX, sm_80)"


@pytest.mark.build
def test_launches_are_told(parts: list[Part], tmp_path: Path) -> None:
    """In the manifest, by `verify --json`, and to people."""
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    options: dict[str, Any] = {"target": "pretend", "verify": "emulate", "tune": "off", "dims": {"batch": (1, 64)}}
    artifact = ortisan.build(tmp_path / "mlp.onnx", tmp_path / "out", **options)
    for told in (
        artifact.manifest["verification"],
        json.loads(run("verify", tmp_path / "out", "--emulate", "--json")[1]),
    ):
        assert [(work["launches"], work["loaded"], work["stored"]) for work in told["work"]] == [(3, 1520, 310)] * 2
        assert told["work"][0]["kernels"][0] == {
            "kernel": "gemm<A>",
            "symbol": "_Z5gemm1",
            "launches": 2,
            "blocks": 8,
            "instructions": 90,
            "loaded": 1500,
            "stored": 300,
        }
    shown = run("verify", tmp_path / "out", "--emulate", "--dim", "batch=3")[1]
    assert re.search(
        r"3 launches at batch=3: 1.52 kB loaded, 310 B stored.\n  kernel, at batch=3 .*\n  gemm<A> +2 ", shown
    )


@pytest.mark.build
def test_other_builds_say_that_they_ran(tmp_path: Path) -> None:
    manifest = ortisan.build(mlp(), tmp_path / "ran", tune="off", keep="all", quick=True).manifest
    assert manifest["verified"] == "run"
    manifest = ortisan.build(mlp(), tmp_path / "out", tune="off", keep="all", quick=True, verify=False).manifest
    assert manifest["verified"] is None


@pytest.mark.build
def test_what_departs_is_left(parts: list[Part], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults.inject(monkeypatch, {1: faults.OFF_BY_A_LITTLE})
    artifact = build(three_parts(), tmp_path / "out", name="net", exclude=["Softmax"])
    assert artifact.ops == ("net_0", "net_2")
    (left,) = artifact.manifest["departures"]
    assert left["op"] == "net_1"
    assert "departs" in left["reason"]
    assert artifact.manifest["verified"] == "emulated (PTX, sm_80)"


@pytest.mark.build
def test_strict_makes_it_an_error(parts: list[Part], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults.inject(monkeypatch, {0: faults.SIGN})
    with pytest.raises(ortisan.VerifyError, match="disagree in 1 output"):
        build(mlp(), tmp_path / "out", strict=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.build
def test_a_library_without_ptx_is_refused(parts: list[Part], tmp_path: Path) -> None:
    parts[:] = [Part("90", "PTX")]
    with pytest.raises(ArtifactError, match=r"'libmlp\.so' holds no PTX for sm_80, which emulation executes"):
        build(mlp(), tmp_path / "out", name="mlp")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_emulated_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match=r"executes the kernels of GPU targets, and cpu:\S+ has none"):
        ortisan.build(mlp(), tmp_path / "out", verify="emulate")
    with pytest.raises(OptionError, match="can't be combined with sources_only=True"):
        ortisan.build(mlp(), tmp_path / "out", target="cuda:80", verify="emulate", sources_only=True)
    monkeypatch.setenv("CUDACXX", "/nowhere/nvcc")
    told: list[str] = []
    with pytest.raises(ToolchainError, match=r"\$CUDACXX is '/nowhere/nvcc'"):
        ortisan.build(mlp(), tmp_path / "out", target="cuda:80", verify="emulate", on_progress=told.append)
    assert told == ["reading the model"]
    assert list(tmp_path.iterdir()) == []


def test_the_oldest_architecture_is_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ortisan.codegen.ait.backend.find_cuda", lambda: None)
    assert CudaBackend(("90", "80")).emulated() == "80"
    with pytest.raises(OptionError, match="there is nothing to emulate for the target cpu"):
        parse_target("cpu").emulated()


@pytest.mark.build
def test_an_emulated_session_is_a_session(parts: list[Part], tmp_path: Path) -> None:
    """By names and feeds, and by bindings; its kernels are those of the last run."""
    model = mlp()
    artifact = build(model, tmp_path / "out", dims={"batch": (1, 64)})
    session = ortisan.emulate(artifact)
    x = np.ones((3, session.get_inputs()[0].shape[1]), np.float32)
    assert session.kernels == ()
    (have,) = session.run([session.get_outputs()[0].name], {session.get_inputs()[0].name: x})
    assert [kernel.launches for kernel in session.kernels] == [2, 1]
    binding = session.io_binding()
    binding.bind_cpu_input(session.get_inputs()[0].name, x)
    binding.bind_output(session.get_outputs()[0].name)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], have)


@pytest.mark.build
def test_why_a_launch_failed_is_told(parts: list[Part], tmp_path: Path) -> None:
    """What ONNX Runtime says of the run comes first; generated code has words of its own for any CUDA error."""
    session = ortisan.emulate(build(mlp(), tmp_path / "out", dims={"batch": (1, 64)}))
    (runtime,) = emulate._RUNTIMES
    runtime.ortisan_cuda_refusal = lambda text, size: setattr(text, "value", b"gemm, line 7: misaligned")
    wrong = {session.get_inputs()[0].name: np.ones((3, 1), np.float32)}
    with pytest.raises(Exception, match="INVALID_ARGUMENT") as plain:
        session.run(None, wrong)
    assert not isinstance(plain.value, EmulationError)
    numbers = iter((4, 5))
    runtime.ortisan_cuda_refusals = lambda: next(numbers)
    with pytest.raises(EmulationError, match=r"Got invalid dimensions.*: gemm, line 7: misaligned$"):
        session.run(None, wrong)


def test_other_sessions_run_in_the_child(parts: list[Part], tmp_path: Path) -> None:
    from ortisan.checks.session import reference_session

    onnx.save(mlp(), tmp_path / "mlp.onnx")
    session = reference_session(tmp_path / "mlp.onnx")
    with Isolated() as child:
        emulator = Emulator(parse_target("pretend"), child, lambda text: None)
        assert emulator.open(session) == child.open(session)
        emulator.forget(session)


def test_sizes_are_kept_small() -> None:
    dims = {"a": 128, "b": (1, 512), "c": [16, 64], "d": (0, 3), "e": "free"}
    assert small_dims(dims) == {"a": 128, "b": (1, SMALL), "c": (16, 16), "d": (0, 3), "e": "free"}


def test_what_is_left_is_estimated_from_the_first_run() -> None:
    now = [0.0]
    estimate = Estimate(3, lambda: now[0])
    shown = []
    for _ in range(4):
        for _ in range(2):
            estimate.count()
            shown.append(str(estimate))
            now[0] += 5
        estimate.end_run()
    assert shown == [
        *("1 after 0 s", "2 after 5 s"),
        *("3/6, about 20 s left", "4/6, about 15 s left"),
        *("5/6, about 10 s left", "6/6, about 5 s left"),
        *("7 after 30 s", "8 after 35 s"),
    ]
