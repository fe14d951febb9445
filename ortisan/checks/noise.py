"""How far a model's own outputs move when nothing that matters changes: the bound where a named tolerance is too tight.

The source model runs with ONNX Runtime's optimizations, with its inputs moved by an ulp, and with its weights moved by
a few. A model of float16, of quantizers or with an argmax can move more than the tolerance; a compiled model may then
differ by a small multiple of that, in size and in the share of elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ortisan.checks.compare import Difference, compare_outputs, flat
from ortisan.checks.expected import Expected, ExpectedCase
from ortisan.checks.isolated import Runner
from ortisan.checks.session import SessionSpec
from ortisan.converter.passes.move_weights import move_array
from ortisan.errors import ArtifactError
from ortisan.runtime.engine import Array, Feeds, RunFailed

FACTOR = 4.0
"""How many times the model's own noise a compiled model may differ."""
_SEEDS = (1, 2)
_FEW = 4.0
"""Elements that may be off besides: so few are counted too inexactly."""


@dataclass(frozen=True)
class Noise:
    """The largest differences among runs of the source model that should be equal."""

    max_abs: float = 0.0
    max_rel: float = 0.0
    off: float = 0.0
    elements: int = 1
    unstable: str = ""
    """Why its outputs can't even be compared with each other: a shape that changes, or NaN that moves."""

    def covers(self, difference: Difference) -> bool:
        """Whether a difference is no more than a small multiple of this noise."""
        if difference.problem:
            return bool(self.unstable)
        close = difference.max_abs <= FACTOR * self.max_abs or difference.max_rel <= FACTOR * self.max_rel
        return close and difference.off <= FACTOR * self.off + _FEW / self.elements

    def with_run(self, difference: Difference) -> Noise:
        """A run that can't be compared says nothing about sizes: it excuses no number."""
        if difference.problem:
            return replace(self, unstable=difference.problem)
        return Noise(
            max(self.max_abs, difference.max_abs),
            max(self.max_rel, difference.max_rel),
            max(self.off, difference.off),
            self.elements,
            self.unstable,
        )


def measure_noise(
    runner: Runner, expected: Expected, references: Sequence[SessionSpec], moved: Sequence[SessionSpec]
) -> dict[tuple[str, str], Noise]:
    """(case, output) -> noise. `references` run on inputs moved by an ulp, the sessions of `moved` on the inputs
    themselves: the optimized model, the model with other weights.
    """
    found: dict[tuple[str, str], Noise] = {}
    for case in expected.cases:
        noise = [Noise(elements=max(1, sum(array.size for array in flat(each)))) for each in case.results]
        runs = [(spec, case.case.feeds) for spec in moved]
        runs += [(spec, feeds) for spec in references for feeds in _moved_inputs(case)]
        for spec, feeds in runs:
            try:
                outputs = runner.run(spec, feeds).outputs
            except (RunFailed, ArtifactError):
                continue
            pairs = zip(outputs, case.results, strict=True)
            noise = [each.with_run(compare_outputs(*pair)) for each, pair in zip(noise, pairs, strict=True)]
        found |= {(case.case.label, name): each for name, each in zip(expected.outputs, noise, strict=True)}
    return found


def _moved_inputs(case: ExpectedCase) -> list[Feeds]:
    """The inputs with each float moved to a neighbour, in several ways; none when there are no floats."""
    if not any(array.dtype.kind == "f" for array in map(np.asarray, case.case.feeds.values())):
        return []
    return [move_floats(case.case.feeds, seed) for seed in _SEEDS]


def move_floats(feeds: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """Each float becomes the next one up or down, at random."""
    rng = np.random.default_rng(seed)
    return {name: move_array(np.asarray(array), rng) for name, array in feeds.items()}
