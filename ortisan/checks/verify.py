"""Compares a compiled model with the source model in ONNX Runtime, optimizations off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ortisan.checks.compare import Difference, compare, dtype_of
from ortisan.checks.samples import Case
from ortisan.converter.passes.rounding import coarsest
from ortisan.errors import OptionError, VerifyError
from ortisan.registry.dtypes import Array, DType
from ortisan.runtime.engine import RunFailed, onnxruntime, open_session, quiet_options, run


@dataclass(frozen=True)
class Figure:
    """The error of one output on one set of inputs."""

    case: str
    output: str
    dtype: str
    difference: Difference
    passed: bool


@dataclass(frozen=True)
class Verification:
    """All outputs on all sets of inputs."""

    figures: tuple[Figure, ...]
    reference: str

    @property
    def passed(self) -> bool:
        return all(figure.passed for figure in self.figures)

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

    def to_json(self) -> dict[str, Any]:
        return {"passed": self.passed, "reference": self.reference, "figures": [asdict(f) for f in self.figures]}

    def __repr__(self) -> str:
        state = "passed" if self.passed else "FAILED"
        return (
            f"Verification({state}: {len(self.worst())} outputs, {len(self.cases)} cases, max abs {self.max_abs:.3g})"
        )


def _badness(figure: Figure) -> tuple[bool, float]:
    return not figure.passed, figure.difference.max_rel


@dataclass(frozen=True, eq=False)
class Expected:
    """Outputs of stock ONNX Runtime, optimizations off, for the inputs that it accepted."""

    outputs: tuple[str, ...]
    cases: tuple[tuple[Case, Sequence[Array]], ...]


def open_reference(path: Path) -> Any:
    """Opens a session with optimizations off. It runs only a few times, so prepacking its weights would not pay off."""
    options = quiet_options(optimizations="none")
    options.add_session_config_entry("session.disable_prepacking", "1")
    return open_session(path, options)


def expect(reference: Any, cases: Iterable[Iterable[Case]]) -> Expected:
    """Runs the reference on the first inputs of each list that it accepts."""
    return Expected(tuple(output.name for output in reference.get_outputs()), tuple(_accepted(reference, cases)))


def verify_session(
    session: Any, path: Path, cases: Iterable[Iterable[Case]], rounded: Mapping[str, DType] | None = None
) -> Verification:
    """Runs `session` (the compiled model) and the model at `path` in stock ONNX Runtime on the same inputs."""
    return compare_session(session, expect(open_reference(path), cases), rounded)


def compare_session(session: Any, expected: Expected, rounded: Mapping[str, DType] | None = None) -> Verification:
    """Runs the compiled model where the reference was run, and compares.

    `rounded` maps outputs that depend on a value of a coarser float type to that type.
    """
    figures = [
        figure
        for case, results in expected.cases
        for figure in _figures(session, case, expected.outputs, results, rounded or {})
    ]
    return Verification(tuple(figures), f"onnxruntime {onnxruntime().__version__}, optimizations off")


def _figures(
    session: Any, case: Case, names: Sequence[str], expected: Sequence[Array], rounded: Mapping[str, DType]
) -> list[Figure]:
    try:
        actual = run(session, case.feeds)
    except RunFailed as failed:
        raise VerifyError(
            f"the compiled model fails where ONNX Runtime does not, at {case.label}: {failed}"
        ) from failed
    result = []
    for name, a, b in zip(names, map(np.asarray, actual), map(np.asarray, expected), strict=True):
        difference = compare(a, b)
        dtype = dtype_of(b)
        passed = difference.within(coarsest([dtype, rounded.get(name)]) or dtype, "close")
        result.append(Figure(case.label, name, str(b.dtype), difference, passed))
    return result


def _accepted(reference: Any, cases: Iterable[Iterable[Case]]) -> Iterator[tuple[Case, list[Array]]]:
    """Yields the first attempt of each list that stock ONNX Runtime can run, with its outputs; equal sizes once."""
    failure = "no inputs to try"
    seen: set[str] = set()
    for attempts in cases:
        for case in attempts:
            try:
                expected = run(reference, case.feeds)
            except RunFailed as failed:
                if case.given:
                    raise OptionError(f"ONNX Runtime itself can't run the model on {case.label}: {failed}") from failed
                failure = str(failed)
                continue
            if case.label not in seen:
                seen.add(case.label)
                yield case, expected
            break
    if not seen:
        raise OptionError(
            f"ONNX Runtime itself runs the model on none of the sample inputs ({failure}); give inputs that it can run "
            "on (--inputs FILE.npz, or inputs=)"
        )
