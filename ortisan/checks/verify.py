"""Compares a compiled model with the source model in ONNX Runtime, optimizations off."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ortisan.checks.compare import Difference, compare_outputs, dtype_of, flat
from ortisan.checks.expected import Expected, expect
from ortisan.checks.isolated import RUN_SECONDS, Isolated, Runner
from ortisan.checks.noise import Noise
from ortisan.checks.samples import Case
from ortisan.checks.session import SessionSpec
from ortisan.checks.work import Work
from ortisan.converter.passes.rounding import coarsest
from ortisan.errors import ArtifactError, VerifyError
from ortisan.registry.dtypes import DType
from ortisan.runtime.engine import RunFailed, onnxruntime

PATIENCE_SECONDS = 15.0
"""How long any run of a compiled model may take, however fast the reference was."""

_RUN_TWICE = 2
"""So many cases, of few sizes, run again."""


@dataclass(frozen=True)
class Figure:
    """The error of one output on one set of inputs."""

    case: str
    output: str
    dtype: str
    difference: Difference
    passed: bool
    noise: Noise | None = None
    """The source model's own, where the difference had to be judged by it."""


@dataclass(frozen=True)
class Verification:
    """All outputs on all sets of inputs."""

    figures: tuple[Figure, ...]
    reference: str
    emulated: str | None = None
    """What was executed in place of a GPU's code, if anything was: "PTX, sm_80"."""
    work: tuple[Work, ...] = ()
    """What was launched on each set of inputs, where that is counted: by an emulator."""

    @property
    def how(self) -> str:
        return f"emulated ({self.emulated})" if self.emulated else "run"

    @property
    def passed(self) -> bool:
        return all(figure.passed for figure in self.figures)

    @property
    def noisy(self) -> dict[str, Figure]:
        """The worst figure of each output that was judged by the noise of the source model itself."""
        return {name: figure for name, figure in self.worst().items() if figure.noise is not None}

    @property
    def max_abs(self) -> float:
        return max((figure.difference.max_abs for figure in self.figures), default=0.0)

    @property
    def cases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(figure.case for figure in self.figures))

    def worst(self) -> dict[str, Figure]:
        """The figure with the largest error of each output; failed figures rank first."""
        found: dict[str, Figure] = {}
        for figure in self.figures:
            known = found.get(figure.output)
            if known is None or _badness(figure) > _badness(known):
                found[figure.output] = figure
        return found

    def check(self) -> Verification:
        """Returns itself, or raises a `VerifyError` that names the worst output."""
        if self.passed:
            return self
        failed = max((figure for figure in self.figures if not figure.passed), key=_badness)
        count = len({figure.output for figure in self.figures if not figure.passed})
        figures = failed.difference
        what = figures.problem or f"max abs error {figures.max_abs:.3g}, relative {figures.max_rel:.3g}"
        raise VerifyError(
            f"the compiled model and ONNX Runtime disagree in {count} output{'s' if count > 1 else ''}; the worst is "
            f"'{failed.output}' at {failed.case}: {what}"
        )

    def why_not(self) -> str:
        """What `check` would say; empty when all is well."""
        try:
            self.check()
        except VerifyError as error:
            return str(error)
        return ""

    def to_json(self) -> dict[str, Any]:
        figures = [asdict(figure) for figure in self.figures]
        work = [work.to_json() for work in self.work]
        return {"passed": self.passed, "reference": self.reference, "figures": figures, "work": work}

    def __repr__(self) -> str:
        state = "passed" if self.passed else "FAILED"
        return (
            f"Verification({state}: {len(self.worst())} outputs, {len(self.cases)} cases, max abs {self.max_abs:.3g})"
        )


def _badness(figure: Figure) -> tuple[bool, float]:
    return not figure.passed, figure.difference.max_rel


def verify_session(
    runner: Isolated,
    compiled: SessionSpec,
    reference: SessionSpec,
    cases: Iterable[Iterable[Case]],
    rounded: Mapping[str, DType] | None = None,
) -> Verification:
    """Runs the compiled model and the reference on the same inputs, and compares."""
    return compare_session(runner, compiled, expect(runner, reference, cases), rounded)


def compare_session(
    runner: Runner,
    compiled: SessionSpec,
    expected: Expected,
    rounded: Mapping[str, DType] | None = None,
    noise: Mapping[tuple[str, str], Noise] | None = None,
) -> Verification:
    """Runs the compiled model where the reference was run, and compares.

    `rounded` maps outputs that depend on a value of a coarser float type to that type; `noise` is the source model's
    own, by case and output, where it was measured. A run that fails, dies or never ends is a failed figure.
    """
    figures: list[Figure] = []
    work: list[Work] = []
    for number, case in enumerate(expected.cases):
        try:
            # What counts is the second run: ONNX Runtime then uses the layout of memory that the first has shown.
            for _ in range(_runs(number)):
                actual = runner.run(compiled, case.case.feeds, _patience(case.seconds))
        except (RunFailed, ArtifactError) as failed:
            figures.append(_failed_run(case.case, expected.outputs[0], failed))
            continue
        if actual.kernels:
            work.append(Work(case.case.label, actual.kernels))
        for name, ours, theirs in zip(expected.outputs, actual.outputs, case.results, strict=True):
            own = (noise or {}).get((case.case.label, name))
            figures.append(_figure(case.case, name, (ours, theirs), rounded=(rounded or {}).get(name), noise=own))
    reference = f"onnxruntime {onnxruntime().__version__}, optimizations off"
    return Verification(tuple(figures), reference, work=tuple(work))


def runs_of(expected: Expected) -> int:
    """How many runs `compare_session` makes."""
    return sum(map(_runs, range(len(expected.cases))))


def _runs(number: int) -> int:
    """How often the case of this number is run."""
    return 2 if number < _RUN_TWICE else 1


def _patience(seconds: float) -> float:
    """How long a compiled model may take where the reference took `seconds`, before it counts as one that hangs."""
    return min(RUN_SECONDS, PATIENCE_SECONDS + 20.0 * seconds)


def _figure(case: Case, name: str, results: tuple[Any, Any], *, rounded: DType | None, noise: Noise | None) -> Figure:
    """`results` are ours and theirs."""
    difference = compare_outputs(*results)
    arrays = flat(results[1])
    dtype = dtype_of(arrays[0]) if arrays else None
    passed = difference.within(coarsest([dtype, rounded]) or dtype, "close")
    if passed or noise is None:
        noise = None
    else:
        passed = noise.covers(difference)
    return Figure(case.label, name, str(arrays[0].dtype) if arrays else "", difference, passed, noise)


def _failed_run(case: Case, output: str, failed: Exception) -> Figure:
    problem = f"the compiled model fails where ONNX Runtime does not: {failed}"
    return Figure(case.label, output, "", Difference(math.inf, math.inf, math.inf, math.nan, problem, 1.0), False)
