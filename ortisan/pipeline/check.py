"""verify and bench of an artifact folder: the compiled model against ONNX Runtime on the model it was built from."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ortisan.checks.bench import Bench, check_rivals, time_pair
from ortisan.checks.expected import Expected, expect
from ortisan.checks.inputs import Cases, Inputs
from ortisan.checks.isolated import Isolated, Runner
from ortisan.checks.noise import measure_noise
from ortisan.checks.session import SessionSpec, artifact_session, compiled_session, reference_session, stock_session
from ortisan.checks.turns import Effort
from ortisan.checks.verify import Verification, compare_session, runs_of
from ortisan.converter.read.symbols import Bounds
from ortisan.errors import OptionError
from ortisan.pipeline.emulate import emulate_artifact, small_dims
from ortisan.pipeline.options import plain_dims
from ortisan.pipeline.per_node import Departure, find_departure
from ortisan.pipeline.source import Model, Source, find_source
from ortisan.pipeline.unforeseen import raises_ortisan_errors
from ortisan.registry.dtypes import DType
from ortisan.runtime.artifact import Artifact, check_content, open_artifact
from ortisan.runtime.engine import onnxruntime
from ortisan.runtime.settings import Weights, check_weights


@dataclass(frozen=True)
class Checked:
    """What `verify` found; `departure` is the first op-graph value that is off, where that was asked for."""

    verification: Verification
    departure: Departure | None = None

    @property
    def passed(self) -> bool:
        return self.verification.passed and self.departure is None

    def to_json(self) -> dict[str, Any]:
        verified = self.verification
        departure = self.departure.to_json() if self.departure else None
        return {**verified.to_json(), "verified": verified.how, "departure": departure}


@raises_ortisan_errors
def verify(
    folder: str | os.PathLike[str] | Artifact,
    *,
    model: Model | None = None,
    inputs: Inputs = None,
    dims: Bounds | None = None,
    per_node: bool = False,
    emulate: bool = False,
    on_progress: Callable[[str], None] | None = None,
) -> Checked:
    """Compares all outputs on several sets of inputs; a difference is in the result, not an error.

    `emulate` runs an artifact for GPUs on the CPU, its own kernels executed from their PTX, at small sizes.

    `model` is needed when the artifact was built from a model in memory or from a file that is gone. `per_node` also
    runs the compiled graphs value by value. `dims` are sizes to run at, or ranges of them, above those that the
    artifact was built with. All bytes of the artifact's files are checked first.
    """
    onnxruntime()
    artifact = open_artifact(folder)
    check_content(artifact, all_bytes=True)
    options = artifact.manifest["options"]
    sizes = small_dims(options["dims"]) if emulate else options["dims"]
    with find_source(artifact.manifest, artifact.folder, model) as source:
        cases = Cases(inputs, lambda: source.sampler(plain_dims({**sizes, **(dims or {})})))
        rounded = {name: DType(dtype) for name, dtype in artifact.manifest["rounded"].items()}
        with Isolated() as runner:
            emulator = emulate_artifact(artifact, runner, on_progress or (lambda _: None)) if emulate else None
            expected = expect(runner, reference_session(source.file), cases.compared(), cases)
            compiled = compiled_session(artifact) if emulate else artifact_session(artifact)
            if emulator is not None:
                emulator.announce(runs_of(expected))
            found = _compare(runner, (emulator or runner, compiled), source, expected, rounded)
            if emulator is not None:
                found = replace(found, emulated=emulator.what)
            ran = (each.case for each in expected.cases)
            departure = find_departure(runner, artifact, source, ran) if per_node else None
    return Checked(found, departure)


def _compare(
    runner: Isolated, ours: tuple[Runner, SessionSpec], source: Source, expected: Expected, rounded: Mapping[str, DType]
) -> Verification:
    """At the plain tolerance, and where that is not met, by the noise of the source model itself."""
    reference = reference_session(source.file)
    found = compare_session(*ours, expected, rounded)
    if found.passed:
        return found
    moved = [stock_session(source.file), reference_session(source.moved_file)]
    noise = measure_noise(runner, expected, [reference], moved)
    return compare_session(*ours, expected, rounded, noise)


@raises_ortisan_errors
def bench(
    folder: str | os.PathLike[str] | Artifact,
    *,
    model: Model | None = None,
    inputs: Inputs = None,
    dims: Bounds | None = None,
    threads: int | None = None,
    runs: int | None = None,
    weights: Weights | None = None,
    against: str = "ort",
) -> Bench:
    """Times the artifact against stock ONNX Runtime, run by run in turn. `weights` as in `load`.

    `dims` are sizes to run at, or ranges of them, above those that the artifact was built with.
    """
    check_rivals(against)
    if weights is not None:
        check_weights(weights)
    for what, number in (("threads", threads), ("runs", runs)):
        if number is not None and number < 1:
            raise OptionError(f"{what} must be at least 1, not {number}")
    artifact = open_artifact(folder)
    check_content(artifact, all_bytes=True)
    options = artifact.manifest["options"]
    with find_source(artifact.manifest, artifact.folder, model) as source:
        cases = Cases(inputs, lambda: source.sampler(plain_dims({**options["dims"], **(dims or {})})))
        compiled = artifact_session(artifact, threads=threads, weights=weights)
        stock = stock_session(source.file, threads=threads, providers=artifact.providers)
        with Isolated() as runner:
            return time_pair(runner, compiled, stock, cases.timed(), Effort(runs=runs), shared=artifact.shared)
