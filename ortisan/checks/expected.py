"""What stock ONNX Runtime, optimizations off, gives for the sample inputs: what a compiled model has to give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ortisan.checks.inputs import Cases
from ortisan.checks.isolated import RUN_SECONDS, Isolated, RunDied
from ortisan.checks.samples import Case
from ortisan.checks.session import SessionSpec
from ortisan.errors import OptionError
from ortisan.runtime.engine import RunFailed

_SAMPLE_SECONDS = 10.0
"""How long a sample may run before it counts as one that never ends; inputs of the caller's may take longer."""
_BUDGET_SECONDS = 5.0
"""Once samples have run for this long, no further size is tried."""
_MOST_DEATHS = 8
_MOST_HANGS = 2


@dataclass(frozen=True, eq=False)
class ExpectedCase:
    """One set of inputs that the reference accepted, its outputs, and how long it took."""

    case: Case
    results: list[Any]
    seconds: float


@dataclass(frozen=True, eq=False)
class Expected:
    """Outputs of the reference for the inputs that it accepted."""

    outputs: tuple[str, ...]
    cases: tuple[ExpectedCase, ...]
    narrow: str | None = None
    """A sentence about dims of which one size alone ran."""


def expect(
    runner: Isolated, reference: SessionSpec, cases: Iterable[Iterable[Case]], origin: Cases | None = None
) -> Expected:
    """Runs the reference on the first inputs of each list that it accepts; an `OptionError` if it accepts none.

    Inputs that kill the process or never end count as refused. Inputs of the caller's have to run. `origin` is where
    the cases come from: it is told what was refused and why, and knows what to advise when all were.
    """
    outputs = runner.open(reference)
    trials = Trials(runner, reference, origin)
    found = tuple(trials.accepted(cases))
    if not found:
        raise OptionError(trials.none_accepted())
    return Expected(tuple(outputs), found, origin.narrow() if origin is not None else None)


class Trials:
    """Tries inputs until ONNX Runtime accepts some, within limits on time, deaths and hangs."""

    def __init__(self, runner: Isolated, spec: SessionSpec, origin: Cases | None = None) -> None:
        self._runner, self._spec, self._origin = runner, spec, origin
        self._deaths = self._hangs = 0
        self._why = "there are no inputs to try"

    def none_accepted(self) -> str:
        """What to say when no attempt ran."""
        if self._origin is not None:
            return self._origin.advice(self._why)
        return (
            f"ONNX Runtime itself runs the model on none of the sample inputs ({self._why}); give inputs that it can "
            "run on (--inputs FILE.npz, or inputs=)"
        )

    def accepted(self, cases: Iterable[Iterable[Case]]) -> Iterator[ExpectedCase]:
        """Yields the first attempt of each list that runs, with its outputs; equal sizes once."""
        seen: set[str] = set()
        spent = 0.0
        for attempts in cases:
            found = self.first(attempts)
            if found is not None:
                spent += found.seconds
                if found.case.label not in seen:
                    seen.add(found.case.label)
                    yield found
            if self._exhausted() or (seen and spent > _BUDGET_SECONDS and not (found and found.case.given)):
                return

    def first(self, attempts: Iterable[Case]) -> ExpectedCase | None:
        for case in attempts:
            try:
                done = self._runner.run(self._spec, case.feeds, RUN_SECONDS if case.given else _SAMPLE_SECONDS)
            except RunFailed as failed:
                if case.given:
                    raise OptionError(f"ONNX Runtime itself can't run the model on {case.label}: {failed}") from failed
                self._refuse(case, failed)
                if self._exhausted():
                    return None
                continue
            return ExpectedCase(case, done.outputs, done.seconds)
        return None

    def _refuse(self, case: Case, failed: RunFailed) -> None:
        self._why = str(failed)
        if self._origin is not None:
            self._origin.rejected(case, str(failed))
        if isinstance(failed, RunDied):
            self._deaths += 1
            self._hangs += failed.hung

    def _exhausted(self) -> bool:
        return self._deaths >= _MOST_DEATHS or self._hangs >= _MOST_HANGS
