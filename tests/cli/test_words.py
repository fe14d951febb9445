"""What a person reads: causes first, warnings as sentences, a doctor that looks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import onnx
import pytest

import ortisan
from ortisan.cli import tidy
from ortisan.converter.partition import LeftOut
from ortisan.pipeline.manifest import group_left_out
from ortisan.runtime.folder import reason
from tests.models.mlp import mlp
from tests.test_cli import run

OURS = str(Path(ortisan.__file__).parent / "codegen" / "some.py")


def test_causes_come_before_what_follows_from_them() -> None:
    follows = "nothing to compute: the nodes around it stay in ONNX Runtime"
    left = [LeftOut(f"r{n}", "Reshape", follows) for n in range(9)]
    groups = group_left_out([*left, LeftOut("l", "LSTM", "no lowering for op LSTM")])
    assert [group["op_type"] for group in groups] == ["LSTM", "Reshape"]


def test_inspect_names_causes_first(tmp_path: Path) -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 17, "custom": 1]>\n'
        "g (float[2,3] x) => (float[6] y, float[6] z) {\n"
        "a = Flatten(x) b = Flatten(a) c = custom.Unheard(b) d = Flatten(c) y = custom.Other(d) z = custom.Other(c)\n}"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    code, shown, complaint = run("inspect", tmp_path / "m.onnx", "--explain")
    assert code == 0, complaint
    ops = [line.split()[0] for line in shown.splitlines() if line.startswith(("Flatten", "Unheard", "Other"))]
    assert ops == ["Unheard", "Flatten", "Other"]
    assert "6 nodes, 0 can be compiled" in shown
    assert "No pattern nearly matched." in shown


def test_warnings_are_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    def warn() -> None:
        for line in range(2):
            warnings.warn_explicit("The cache can't be written.", UserWarning, OURS, line)
        warnings.warn_explicit("not for users", UserWarning, "/somewhere/numpy/core.py", 3)

    tidy.tidy(warn)()
    assert capsys.readouterr().err == "warning: The cache can't be written.\n"


def test_an_error_is_not_told_twice(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        warnings.warn_explicit("Products can't be timed (No C++ compiler was found).", UserWarning, OURS, 1)
        raise ortisan.ToolchainError("No C++ compiler was found.")

    with pytest.raises(SystemExit):
        tidy.tidy(fail)()
    assert capsys.readouterr().err == "error: No C++ compiler was found.\n"


def test_doctor_tries_to_write_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cache() -> dict[str, str]:
        return next(finding for finding in json.loads(run("doctor", "--json")[1]) if finding["what"] == "build cache")

    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "cache"))
    assert cache()["state"] == "ok"
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache").chmod(0o777)
    assert "everybody can write to" in cache()["detail"]
    monkeypatch.setenv("ORTISAN_CACHE_DIR", "/proc/ortisan")
    assert "can't be written" in cache()["detail"]
    assert cache()["state"] == "optional"


def test_a_dim_of_nothing_is_noticed(tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "m.onnx")
    assert (
        "warning: --dim batch=0: what has this dim has no elements."
        in run("inspect", tmp_path / "m.onnx", "--dim", "batch=0")[2]
    )


def test_a_full_disk_is_called_so() -> None:
    assert reason(OSError("65536 requested and 23552 written")) == "the disk is full"
    assert reason(OSError(28, "No space left on device")) == "the disk is full"
    assert reason(OSError(13, "Permission denied")) == "permission denied"


def test_help_and_version_import_no_compiler() -> None:
    for words in (["--version"], ["build", "--help"]):
        script = (
            f"import sys; from ortisan.cli import main; sys.argv = ['ortisan', *{words}]; main(); print(*sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        heavy = {"numpy", "onnx", "onnx_ir", "sympy", "onnxruntime", "jinja2", "rich.markdown"}
        assert not heavy & set(done.stdout.split())


def test_progress_outside_of_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from ortisan.cli import screen

    now = [0.0]
    monkeypatch.setattr(screen.time, "monotonic", lambda: now[0])
    monkeypatch.delenv("ORTISAN_PROGRESS", raising=False)
    with screen.phases(False) as phase:
        for second, text in ((1, "reading"), (6, "compiling 1/9"), (7, "compiling 2/9"), (12, "verifying")):
            now[0] = float(second)
            phase(text)
    assert capsys.readouterr().err == "compiling 1/9 (6 s)\nverifying (12 s)\n"
    assert os.environ.get("ORTISAN_PROGRESS") is None
