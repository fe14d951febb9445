"""verify and bench of an artifact folder: the compiled model against ONNX Runtime on the model it was built from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ortisan.checks.bench import Bench, check_rivals, time_pair
from ortisan.checks.inputs import Cases, Inputs
from ortisan.checks.verify import Verification, verify_session
from ortisan.converter.read.symbols import Bounds
from ortisan.errors import OptionError
from ortisan.pipeline.options import plain_dims
from ortisan.pipeline.per_node import Departure, find_departure
from ortisan.pipeline.source import Model, find_source
from ortisan.registry.dtypes import DType
from ortisan.runtime.artifact import Artifact, open_artifact, open_compiled
from ortisan.runtime.engine import onnxruntime, open_session, quiet_options
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
        return {**self.verification.to_json(), "departure": self.departure.to_json() if self.departure else None}


def verify(
    folder: str | os.PathLike[str] | Artifact,
    *,
    model: Model | None = None,
    inputs: Inputs = None,
    dims: Bounds | None = None,
    per_node: bool = False,
) -> Checked:
    """Compares all outputs on several sets of inputs; a difference is in the result, not an error.

    `model` is needed when the artifact was built from a model in memory or from a file that is gone. `per_node` also
    runs the compiled graphs value by value.
    """
    onnxruntime()
    artifact = open_artifact(folder)
    options = artifact.manifest["options"]
    with find_source(artifact.manifest, artifact.folder, model, options["cache"]) as source:
        cases = Cases(inputs, lambda: source.sampler(plain_dims(options["dims"] if dims is None else dims)))
        session = open_compiled(artifact, quiet_options())
        rounded = {name: DType(dtype) for name, dtype in artifact.manifest["rounded"].items()}
        found = verify_session(session, source.file, cases.compared(), rounded)
        departure = find_departure(artifact, source, cases.compared()) if per_node else None
    return Checked(found, departure)


def bench(
    folder: str | os.PathLike[str] | Artifact,
    *,
    model: Model | None = None,
    inputs: Inputs = None,
    threads: int | None = None,
    runs: int | None = None,
    weights: Weights | None = None,
    against: str = "ort",
) -> Bench:
    """Times the artifact against stock ONNX Runtime, run by run in turn. `weights` as in `load`."""
    check_rivals(against)
    if weights is not None:
        check_weights(weights)
    for what, number in (("threads", threads), ("runs", runs)):
        if number is not None and number < 1:
            raise OptionError(f"{what} must be at least 1, not {number}")
    artifact = open_artifact(folder)
    options = artifact.manifest["options"]
    with find_source(artifact.manifest, artifact.folder, model, options["cache"]) as source:
        cases = Cases(inputs, lambda: source.sampler(plain_dims(options["dims"])))
        compiled = open_compiled(artifact, quiet_options(threads=threads), weights=weights)
        stock = open_session(source.file, quiet_options(threads=threads), artifact.providers)
        return time_pair(compiled, stock, cases.timed(), threads=threads, runs=runs, shared=artifact.shared)
