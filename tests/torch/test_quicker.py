"""Graphs that eager runs faster run eager after a few calls, and none that may not be called twice is timed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from torch import nn  # noqa: E402

import ortisan.torch as front  # noqa: E402
from ortisan.torch import quicker  # noqa: E402
from ortisan.torch.direct import Traced  # noqa: E402
from ortisan.torch.quicker import Quicker  # noqa: E402
from tests.models.nets import close  # noqa: E402

pytestmark = pytest.mark.torch
CALLS = 12


class Counted:
    """A function that takes some time on a clock of the test's."""

    def __init__(self, clock: list[float], takes: float) -> None:
        self.clock, self.takes, self.calls = clock, takes, 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        self.clock[0] += self.takes
        return args


def called(
    monkeypatch: pytest.MonkeyPatch, compiled: float, eager: float, *, pure: bool = True
) -> tuple[Any, Any, Any]:
    clock = [0.0]
    monkeypatch.setattr(quicker.time, "perf_counter", lambda: clock[0])
    pair = Counted(clock, compiled), Counted(clock, eager)
    made = Quicker(*pair, Traced(is_pure=pure))
    for _ in range(CALLS):
        assert made(1, 2) == (1, 2)
    return made, *pair


@pytest.mark.parametrize("fast, slow", [(1e-5, 3e-5), (2e-4, 9e-4)])
def test_the_faster_one_stays(monkeypatch: pytest.MonkeyPatch, fast: float, slow: float) -> None:
    made, compiled, eager = called(monkeypatch, slow, fast)
    before = compiled.calls
    made(1, 2)
    assert (compiled.calls, eager.calls > 5) == (before, True)
    made, compiled, eager = called(monkeypatch, fast, slow)
    before = eager.calls
    made(1, 2)
    assert eager.calls == before


def test_larger_sizes_than_those_that_were_timed_are_computed_as_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    made, compiled, _ = called(monkeypatch, 3e-5, 1e-5)
    before = compiled.calls
    made(1, 2)
    made(1, 1)
    assert compiled.calls == before
    made(1, 3)
    assert compiled.calls == before + 1


@pytest.mark.parametrize("takes, pure", [(1e-2, True), (1e-5, False)])
def test_what_is_long_or_changes_things_is_not_timed(monkeypatch: pytest.MonkeyPatch, takes: float, pure: bool) -> None:
    _, compiled, eager = called(monkeypatch, takes, takes / 2, pure=pure)
    assert (compiled.calls, eager.calls) == (CALLS, 0)


@pytest.mark.build
@pytest.mark.parametrize("strict", [False, True])
def test_a_small_net_under_torch_compile(strict: bool, monkeypatch: pytest.MonkeyPatch, graphs: list[Any]) -> None:
    """Each look at the clock takes longer than the one before, but for eager's: so eager seems faster."""
    ticks = itertools.count()
    monkeypatch.setattr(quicker.time, "perf_counter", lambda: [0.0, 2e-4, 2e-4, 3e-4][next(ticks) % 4])
    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(4, 8)
    fast = torch.compile(model, backend=front.backend, options={"strict": strict})
    with torch.no_grad():
        for _ in range(CALLS):
            close(fast(x), model(x))
    assert (graphs[0].calls == CALLS) is strict
    model[0].weight.data.mul_(2)
    with torch.no_grad():
        close(fast(x), model(x))
    close(fast(x), model(x))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.count += 1
        return x * 2 + self.count


@pytest.mark.build
def test_what_counts_its_calls_counts_each_once() -> None:
    model = Counting()
    fast, x = torch.compile(model, backend=front.backend), torch.ones(3)
    with torch.no_grad():
        for index in range(CALLS):
            close(fast(x), x * 2 + index + 1)
    assert int(model.count) == CALLS


@pytest.mark.build
def test_dropout_is_drawn_once_a_call() -> None:
    fast, x = torch.compile(nn.Dropout(0.5), backend=front.backend), torch.ones(50)
    torch.manual_seed(3)
    have = [fast(x) for _ in range(CALLS)]
    torch.manual_seed(3)
    for each in have:
        close(each, nn.functional.dropout(x, 0.5))
