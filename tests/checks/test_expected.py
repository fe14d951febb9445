"""Which inputs the reference is run on, and how long each may take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ortisan
from ortisan.checks.expected import Trials, expect
from ortisan.checks.isolated import RunDied
from ortisan.checks.samples import Case
from ortisan.checks.session import reference_session

SPEC = reference_session(Path("model.onnx"))


class Endless:
    """A runner whose runs all take too long; it notes how long each might have taken."""

    def __init__(self) -> None:
        self.limits: list[float] = []

    def open(self, _: object) -> list[str]:
        return ["y"]

    def run(self, _spec: object, _feeds: object, seconds: float) -> Any:
        self.limits.append(seconds)
        raise RunDied(f"it did not end within {seconds:.0f} s", hung=True)


def sizes(*, given: bool = False) -> Iterator[list[Case]]:
    for size in range(1, 100):
        yield [Case(f"n={size}", {"x": np.ones(size, np.float32)}, given)]


def test_samples_that_never_end_are_given_up_after_two() -> None:
    runner = Endless()
    with pytest.raises(ortisan.OptionError, match=r"on none of the sample inputs \(it did not end within 10 s\)"):
        expect(runner, SPEC, sizes())  # type: ignore[arg-type]
    assert runner.limits == [10, 10]


def test_inputs_of_the_caller_may_take_longer() -> None:
    runner = Endless()
    with pytest.raises(ortisan.OptionError, match="can't run the model on n=1: it did not end within 60 s"):
        list(Trials(runner, SPEC).accepted(sizes(given=True)))  # type: ignore[arg-type]
    assert runner.limits == [60]
