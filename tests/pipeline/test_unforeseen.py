"""What nobody foresaw: an `InternalError` in Python, a sentence and a report file on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import ortisan
import ortisan.pipeline.compile as compile_module
from ortisan.pipeline import unforeseen
from tests.models.mlp import mlp
from tests.test_cli import run


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORTISAN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    return tmp_path / "mlp.onnx"


def break_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(compile_module, "canonicalize", fail)


def deep(depth: int) -> int:
    return deep(depth + 1)


def test_python_gets_one_error_with_the_cause_and_a_report(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "hunter2")
    error = KeyError("weight")
    break_with(monkeypatch, error)
    with pytest.raises(
        ortisan.InternalError, match=r"^a bug in Ortisan: KeyError: 'weight', in .*; please send"
    ) as got:
        ortisan.compile(mlp(), dims={"batch": (1, 4)})
    assert got.value.__cause__ is error
    report = Path(got.value.report or "")
    assert report.parent == cache / "reports"
    text = report.read_text()
    for words in (
        "ortisan 0.",
        "Python 3.",
        "onnxruntime ",
        "dims={'batch': [1, 4]}",
        "KeyError: 'weight'",
        "<ModelProto>",
    ):
        assert words in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "error, words",
    [
        (MemoryError("Unable to allocate 9 TiB"), "memory ran out (MemoryError: Unable to allocate 9 TiB)"),
        (RecursionError("maximum recursion depth exceeded"), "a bug in Ortisan: RecursionError"),
        (
            OSError(28, "No space left on device", "/tmp/x"),
            "'/tmp/x' can't be read or written: no space left on device",
        ),
    ],
)
def test_the_command_line_tells_one_sentence(
    error: Exception, words: str, cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_with(monkeypatch, error)
    code, shown, complaint = run("inspect", model)
    assert (code, shown) == (1, "")
    assert complaint.startswith("error: ")
    assert words in complaint
    assert "Traceback" not in complaint
    assert complaint.count("\n") == 1
    report = next((cache / "reports").iterdir())
    assert str(report) in complaint
    assert f"asked: ortisan.inspect {model!r}" in report.read_text()
    monkeypatch.setenv("ORTISAN_TRACEBACK", "1")
    assert "Traceback" in run("inspect", model)[2]


def test_what_the_command_line_itself_does_wrong_is_told_too(
    cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ortisan.cli.reports.show_inspection", lambda *_, **__: deep(0))
    code, _, complaint = run("inspect", model)
    assert code == 1
    assert "a bug in Ortisan: RecursionError" in complaint
    assert list((cache / "reports").iterdir())


def test_errors_are_json_where_that_was_asked_for(cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, shown, _ = run("build", model.with_name("none.onnx"), "-o", cache / "out", "--json")
    assert code == 1
    error = json.loads(shown)["error"]
    assert error == {"kind": "ModelError", "message": error["message"], "report": None}
    assert "does not exist" in error["message"]
    break_with(monkeypatch, ZeroDivisionError())
    error = json.loads(run("inspect", model, "--json")[1])["error"]
    assert error["kind"] == "InternalError"
    assert Path(error["report"]).is_file()


def test_an_error_of_the_callers_function_is_the_callers(cache: Path) -> None:
    def cancel(phase: str) -> None:
        raise LookupError("cancelled")

    def choose(node: Any) -> bool:
        raise LookupError("cancelled")

    with pytest.raises(LookupError):
        ortisan.compile(mlp(), on_progress=cancel)
    with pytest.raises(LookupError):
        ortisan.compile(mlp(), include=[choose])
    assert not cache.exists()


def test_a_report_goes_to_the_temporary_folder_when_the_cache_can_t_take_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.write_text("a file")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    error = unforeseen.internal_error(KeyError("x"), ["ortisan"])
    assert Path(error.report or "").parent == tmp_path


def test_no_report_is_no_error(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write_text("a file")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere" / "x"))
    (tmp_path / "nowhere").write_text("a file")
    error = unforeseen.internal_error(KeyError("x"), ["ortisan"])
    assert error.report is None
    assert str(error) == "a bug in Ortisan: KeyError: 'x'"


def test_reports_don_t_pile_up_and_hold_no_contents(cache: Path) -> None:
    for number in range(60):
        unforeseen.internal_error(ValueError(number), [])
    assert len(list((cache / "reports").iterdir())) == 50
    assert unforeseen._brief({"x": np.arange(6).reshape(2, 3)}) == "{'x': <ndarray (2, 3)>}"
