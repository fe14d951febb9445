"""Tables of errors and times: figures that would mislead are not shown, or explained."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from ortisan.checks.bench import Bench, Timing
from ortisan.checks.compare import Difference
from ortisan.checks.verify import Figure, Verification
from ortisan.cli.figures import show_benches, show_verification


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    monkeypatch.setenv("COLUMNS", "80")
    return lambda: capsys.readouterr().out


def bench(case: str, ours: tuple[float, float], theirs: tuple[float, float], threads: int | None = None) -> Bench:
    return Bench(case, threads, 10, Timing(*ours), Timing(*theirs), "onnxruntime 1.2")


def verification(*ulps: float) -> Verification:
    figures = [
        Figure("batch=1", f"y{number}", "float32", Difference(1e-6, 1e-7, ulp, 1.0), True)
        for number, ulp in enumerate(ulps)
    ]
    return Verification(tuple(figures), "onnxruntime 1.2")


def test_a_busy_machine_is_named(shown: Callable[[], str]) -> None:
    show_benches([bench("batch=1", (1.62, 3.0), (2.25, 28.7))])
    text = " ".join(shown().split())
    assert "9.57x" in text
    assert "The machine was busy: a median is 12.8 times its best run" in text
    assert "of the best runs it is 1.39x" in text


def test_a_quiet_machine_is_not(shown: Callable[[], str]) -> None:
    show_benches([bench("batch=1", (1.0, 1.1), (2.0, 2.2))])
    assert "busy" not in shown()


def test_several_sizes_are_one_table(shown: Callable[[], str]) -> None:
    show_benches([bench("batch=1", (1, 1), (2, 2)), bench("batch=64", (30, 30), (31, 31))])
    lines = shown().splitlines()
    assert lines[0] == "Against onnxruntime 1.2:"
    assert lines[1].split()[0] == "at"
    assert [line.split()[0] for line in lines[2:]] == ["batch=1", "batch=64"]
    assert all(len(line) <= 80 for line in lines)


def test_the_size_is_said_once_where_there_is_one(shown: Callable[[], str]) -> None:
    show_benches([bench("batch=1", (1, 1), (2, 2), 1), bench("batch=1", (1, 1), (2, 2), 2)])
    assert shown().startswith("Against onnxruntime 1.2, at batch=1:")


def test_ulps_are_shown_where_they_mean_something(shown: Callable[[], str]) -> None:
    show_verification(verification(3.0, 882498587.0))
    text = shown()
    assert "max ulp" in text
    assert "882498587" not in text
    show_verification(verification(882498587.0, math.nan))
    assert "ulp" not in shown()


def test_a_model_without_compiled_parts_is_not_called_compiled(shown: Callable[[], str]) -> None:
    show_verification(verification(1.0), compiled=False)
    text = shown()
    assert "compiled model" not in text
    assert "Nothing is compiled in it; the model agrees with onnxruntime 1.2" in " ".join(text.split())
