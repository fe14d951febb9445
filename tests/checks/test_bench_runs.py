"""How often two sessions are run, and the sessions that a build opens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ortisan
from ortisan.checks import isolated, turns
from ortisan.checks.inputs import Cases
from ortisan.checks.session import SessionSpec
from ortisan.checks.source_runs import SourceRuns
from ortisan.runtime import engine
from tests.models.text import text_model


class Clock:
    """Stands for time: each session moves it on by what its run takes."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Session:
    def __init__(self, clock: Clock, seconds: Iterator[float]) -> None:
        self.clock, self.seconds = clock, seconds

    def run(self, *_: object) -> list[np.ndarray]:
        self.clock.now += next(self.seconds)
        return []


def forever(*seconds: float) -> Iterator[float]:
    while True:
        yield from seconds


@pytest.mark.parametrize(
    "ours, theirs, limit, runs",
    [
        ((0.1,), (0.12,), None, 10),  # two seconds' worth
        ((0.1,), (0.12,), 1.05, 3),  # clearly not slower
        ((0.13,), (0.1,), 1.05, 5),  # clearly slower
        ((0.1, 0.12), (0.1,), 1.05, 10),  # runs that disagree need the whole time
        ((0.12, 0.1, 0.1, 0.1, 0.1, 0.1), (0.1,), 1.05, 5),  # not slower in all but one
        ((0.01,), (0.02,), 1.05, 17),  # half a second at least
        ((1e-5,), (1e-5,), 1.05, 200),  # never more than that
        ((3.0,), (3.0,), None, 5),  # nor fewer
    ],
)
def test_how_often_two_sessions_run(
    ours: tuple[float, ...],
    theirs: tuple[float, ...],
    limit: float | None,
    runs: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(turns, "time", clock)
    sessions = [Session(clock, forever(*seconds)) for seconds in (ours, theirs)]
    times = turns.interleave(sessions, [{}, {}], turns.Effort(limit=limit))
    assert [len(each) for each in times] == [runs, runs]
    assert times[0][0] == pytest.approx(1e3 * ours[0])


def test_the_best_runs_can_be_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that disagree for ever, of a session that is faster at its best."""
    clock = Clock()
    monkeypatch.setattr(turns, "time", clock)
    sessions = [Session(clock, forever(0.1, 0.2)), Session(clock, forever(0.12))]
    times = turns.interleave(sessions, [{}, {}], turns.Effort(limit=1.0, by_best=True))
    assert len(times[0]) == 5


def test_a_given_number_of_runs() -> None:
    clock = Clock()
    sessions = [Session(clock, forever(0.1)) for _ in range(2)]
    assert [len(each) for each in turns.interleave(sessions, [{}, {}], turns.Effort(runs=3, limit=1.0))] == [3, 3]


def test_shared_memory_is_written_in_place() -> None:
    """The third row is added to itself in the caller's buffer, run by run, and not in the array that was given."""
    body = (
        "old = Slice(past, two, three, one) k = Add(old, old) present = TensorScatter<axis=1>(past, k, at) y = Neg(k)"
    )
    model = text_model(
        "(float[1,C,2] past) => (float[1,1,2] y, float[1,C,2] present)",
        body,
        opset=24,
        ir_version=10,
        constants={"one": np.array([1]), "two": np.array([2]), "three": np.array([3]), "at": np.array([2])},
    )
    session = engine.onnxruntime().InferenceSession(model.SerializeToString(), engine.quiet_options())
    past = np.ones((1, 5, 2), np.float32)
    bound: list[Any] = []
    io_binding = session.io_binding
    session.io_binding = lambda: bound.append(io_binding()) or bound[-1]
    run = engine.caller(session, {"past": past}, {"past": "present"})
    for _ in range(3):
        run()
    y, present = bound[0].get_outputs()
    assert (y.numpy() == -8).all()
    assert present.numpy()[0, :, 0].tolist() == [1, 1, 8, 1, 1]
    assert (past == 1).all()


@pytest.mark.build
def test_a_build_opens_each_session_once(model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference, ONNX Runtime with one thread and with all, and ours likewise; the child opens each once."""
    asked: list[tuple[str, str, int | None]] = []
    real = isolated.Isolated.open

    def count(runner: isolated.Isolated, spec: SessionSpec, *rest: float) -> list[str]:
        asked.append((spec.path.name, spec.optimizations, spec.threads))
        return real(runner, spec, *rest)

    monkeypatch.setattr(isolated.Isolated, "open", count)
    artifact = ortisan.build(model_file, tmp_path / "out", name="net", keep="all")
    theirs = {("layers.onnx", "none", None), ("layers.onnx", "all", 1), ("layers.onnx", "all", None)}
    assert set(asked) == theirs | {("net.onnx", "all", 1), ("net.onnx", "all", None)}
    assert artifact.verification is not None
    assert len(artifact.verification.cases) >= 4


def test_what_goes_wrong_in_the_background_is_raised_on_asking(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with SourceRuns(tmp_path / "bad.onnx", "the source model 'bad.onnx'", verify=True, time=True) as source:
        source.settle()
        source.begin_runs(Cases([{}], _no_sampler))
        for ask in (source.expected, source.stock):
            with pytest.raises(ortisan.ArtifactError, match=r"can't load the source model '.*bad\.onnx'.*--no-verify"):
                ask()


def _no_sampler() -> Any:
    raise AssertionError("the inputs are given")


def test_nothing_is_opened_that_nobody_needs(tmp_path: Path) -> None:
    with SourceRuns(tmp_path / "none.onnx", "the source model", verify=False, time=False) as source:
        for ask in (source.expected, source.stock):
            with pytest.raises(ValueError, match="is off"):
                ask()
