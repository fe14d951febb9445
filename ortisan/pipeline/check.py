"""verify and bench of an artifact folder: the compiled model against ONNX Runtime on the model it was built from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ortisan.checks.bench import Bench, check_rivals, time_pair
from ortisan.checks.samples import Case, Sampler
from ortisan.checks.verify import Inputs, Verification, make_cases, read_inputs, verify_session
from ortisan.converter.passes.kv_cache import Cache, with_cache
from ortisan.errors import OptionError
from ortisan.pipeline.per_node import Departure, find_departure
from ortisan.pipeline.source import find_source
from ortisan.registry.dtypes import DType
from ortisan.runtime.artifact import Artifact, open_artifact, open_compiled
from ortisan.runtime.engine import as_file, onnxruntime, open_session, quiet_options
from ortisan.runtime.manifest import Manifest
from ortisan.runtime.providers import needs_cuda, providers_for
from ortisan.runtime.settings import Weights, check_weights

Dims = Mapping[str, int | tuple[int, int]]


@dataclass(frozen=True)
class Checked:
    """What `verify` found; `departure` is the first op-graph value that is off, where that was asked for."""

    verification: Verification
    departure: Departure | None = None


def recorded_dims(manifest: Manifest) -> dict[str, int | tuple[int, int]]:
    dims = (manifest.get("options") or {}).get("dims") or {}
    return {name: tuple(bound) if isinstance(bound, list) else bound for name, bound in dims.items()}


def recorded_cache(manifest: Manifest) -> Cache:
    cache: Cache = (manifest.get("options") or {}).get("cache", "as-is")
    return cache


def recorded_rounding(manifest: Manifest) -> dict[str, DType]:
    """Outputs that are no more accurate than a coarser float type than theirs, and that type."""
    return {name: DType(dtype) for name, dtype in (manifest.get("rounded") or {}).items()}


def verify(
    folder: str | os.PathLike[str] | Artifact,
    *,
    model: Any = None,
    inputs: Inputs = None,
    dims: Dims | None = None,
    per_node: bool = False,
) -> Checked:
    """Compares all outputs on several sets of inputs; a difference is in the result, not an error.

    `model` is needed when the artifact was built from a model in memory or from a file that is gone. `per_node` also
    runs the compiled graphs value by value.
    """
    onnxruntime()
    artifact = open_artifact(folder)
    if per_node and needs_cuda(artifact.target):
        raise OptionError(f"values inside the custom ops can be told for CPU targets only, not for {artifact.target}")
    source = find_source(artifact.manifest, artifact.folder, model)
    limits = dims if dims is not None else recorded_dims(artifact.manifest)
    session = open_compiled(artifact, quiet_options())
    like = with_cache(source, recorded_cache(artifact.manifest))
    found = verify_session(session, like, make_cases(like, inputs, limits), recorded_rounding(artifact.manifest))
    departure = find_departure(artifact, source, make_cases(like, inputs, limits)) if per_node else None
    return Checked(found, departure)


def bench(
    folder: str | os.PathLike[str] | Artifact,
    *,
    model: Any = None,
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
    source = with_cache(find_source(artifact.manifest, artifact.folder, model), recorded_cache(artifact.manifest))
    compiled = open_compiled(artifact, quiet_options(threads=threads), weights=weights)
    cases = (Case("given inputs", feeds) for feeds in read_inputs(inputs)[:1])
    timed = cases if inputs is not None else Sampler(source, recorded_dims(artifact.manifest)).timed()
    with as_file(source) as path:
        stock = open_session(path, quiet_options(threads=threads), providers_for(artifact.target))
        return time_pair(compiled, stock, timed, threads=threads, runs=runs, shared=artifact.shared)
