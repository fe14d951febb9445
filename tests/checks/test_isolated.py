"""Runs in a child process: what kills, hangs or exhausts it is a sentence here, and the next run works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

import ortisan
from ortisan.checks.isolated import Isolated, RunDied
from ortisan.checks.session import SessionSpec, reference_session, stock_session
from ortisan.checks.turns import Effort
from ortisan.runtime.engine import RunFailed
from tests.models.text import text_model


def saved(model: onnx.ModelProto, folder: Path, name: str = "model") -> Path:
    onnx.save(model, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


@pytest.fixture
def double(tmp_path: Path) -> SessionSpec:
    return reference_session(saved(text_model("(float[n] x) => (float[n] y)", "y = Add(x, x)"), tmp_path))


@pytest.fixture
def endless(tmp_path: Path) -> SessionSpec:
    body = "y = Loop(n, keep, x) <body = b (int64 i, bool c, float[1] v) => (bool d, float[1] w) { d = Identity(c) w = Add(v, v) }>"
    constants = {"n": np.array(2**62), "keep": np.array(True)}
    model = text_model("(float[1] x) => (float[1] y)", body, constants=constants)
    return reference_session(saved(model, tmp_path, "endless"))


X = {"x": np.arange(3, dtype=np.float32)}


def test_a_run(double: SessionSpec) -> None:
    with Isolated() as runner:
        assert runner.open(double) == ["y"]
        done = runner.run(double, X)
    assert done.outputs[0].tolist() == [0, 2, 4]
    assert done.seconds > 0


def test_what_ort_refuses_is_its_sentence(double: SessionSpec) -> None:
    with Isolated() as runner, pytest.raises(RunFailed, match="Required inputs"):
        runner.run(double, {})


def test_a_model_that_ort_cannot_load(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with Isolated() as runner, pytest.raises(ortisan.ArtifactError, match=r"can't load '.*bad\.onnx'"):
        runner.open(reference_session(tmp_path / "bad.onnx"))


ONE = {"x": np.ones(1, np.float32)}


def test_a_signal_is_named_and_the_next_run_works(endless: SessionSpec, double: SessionSpec) -> None:
    with Isolated() as runner:
        runner.open(endless)
        child = runner._child
        assert child is not None
        threading.Timer(0.3, os.kill, (child._process.pid, signal.SIGFPE)).start()
        with pytest.raises(RunDied, match="killed by SIGFPE") as died:
            runner.run(endless, ONE)
        assert not died.value.hung
        assert runner.run(double, X).outputs[0].tolist() == [0, 2, 4]


def test_a_run_that_never_ends_is_stopped(endless: SessionSpec) -> None:
    with Isolated() as runner:
        runner.open(endless)
        with pytest.raises(RunDied, match="did not end within 1 s") as died:
            runner.run(endless, ONE, seconds=1.0)
        assert died.value.hung


def test_memory_is_limited(tmp_path: Path) -> None:
    model = text_model("(float[n] x, int64[2] to) => (float[a,b] y)", "y = Expand(x, to)")
    spec = reference_session(saved(model, tmp_path))
    with Isolated(memory=1 << 30) as runner:
        with pytest.raises(RunFailed, match=r"(?i)alloc|memory"):
            runner.run(spec, {"x": np.ones(1, np.float32), "to": np.array([1 << 16, 1 << 14])})
        assert runner.run(spec, {"x": np.ones(1, np.float32), "to": np.array([1, 2])}).outputs[0].shape == (1, 2)


def test_a_model_that_was_written_again_is_opened_again(tmp_path: Path) -> None:
    spec = stock_session(saved(text_model("(float[n] x) => (float[n] y)", "y = Add(x, x)"), tmp_path))
    with Isolated() as runner:
        runner.run(spec, X)
        spec.path.unlink()
        saved(text_model("(float[n] x) => (float[n] y)", "y = Neg(x)"), tmp_path)
        assert runner.run(spec, X).outputs[0].tolist() == [0, -1, -2]


def test_timing_takes_turns(double: SessionSpec) -> None:
    with Isolated() as runner:
        times = runner.time([double, stock_session(double.path)], [X, X], Effort(runs=4))
    assert [len(each) for each in times] == [4, 4]
    assert all(one > 0 for each in times for one in each)


def test_the_child_ends_with_its_parent(double: SessionSpec) -> None:
    """A parent that is killed can't tidy up; its child notices."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom ortisan.checks.isolated import Isolated\n"
        "from ortisan.checks.session import reference_session\n"
        "runner = Isolated()\nrunner.open(reference_session(Path(sys.argv[1])))\n"
        "print(runner._child._process.pid, flush=True)\ntime.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(double.path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for _ in range(200):
        if not _is_running(child):
            return
        time.sleep(0.1)
    raise AssertionError("the child outlived its parent")


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_the_child_imports_no_compiler() -> None:
    code = "import sys, ortisan.checks.child; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    )
    assert not {"onnx", "onnx_ir", "sympy", "jinja2", "typer"} & loaded
