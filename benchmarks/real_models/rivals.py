"""The runtimes that a model is timed in: each opens it for a number of threads and gives a function that runs it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import ortisan
from benchmarks.real_models.results import OPENVINO, OPENVINO_F32, ORT, OURS
from ortisan.registry.dtypes import Array
from ortisan.runtime.engine import open_session, quiet_options

Feeds: TypeAlias = "Mapping[str, Array]"


class Unavailable(Exception):
    """Why a runtime does not take part."""


@dataclass(frozen=True)
class Subject:
    """A model file, what was built from it, and inputs."""

    model: Path
    artifact: Path
    feeds: Feeds


@dataclass(frozen=True)
class Opened:
    """`run` is what is timed; `arrays` gives what it returned as arrays, in the order of the model's outputs."""

    run: Callable[[], Any]
    arrays: Callable[[Any], list[Array]]


def _ours(subject: Subject, threads: int) -> Opened:
    session = ortisan.load(subject.artifact, quiet_options(threads=threads))
    return Opened(functools.partial(session.run, None, dict(subject.feeds)), flat)


def _ort(subject: Subject, threads: int) -> Opened:
    session = open_session(subject.model, quiet_options(threads=threads))
    return Opened(functools.partial(session.run, None, dict(subject.feeds)), flat)


def _openvino(subject: Subject, threads: int, **settings: str) -> Opened:
    """The CPU plugin as it is by default, which computes in bfloat16 where the machine is fast at it."""
    try:
        openvino = importlib.import_module("openvino")
    except ImportError as error:
        raise Unavailable("openvino is not installed") from error
    try:
        core = openvino.Core()
        model = core.read_model(subject.model)
        compiled = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": threads, **settings})
        request = compiled.create_infer_request()
        for name, array in subject.feeds.items():
            request.set_tensor(name, openvino.Tensor(array))
        request.infer(share_inputs=True, share_outputs=True)
    except (RuntimeError, TypeError, ValueError) as error:
        raise Unavailable(" ".join(str(error).split())[-160:]) from error

    def arrays(_: Any) -> list[Array]:
        return [np.array(request.get_tensor(port).data) for port in compiled.outputs]

    return Opened(functools.partial(request.infer, share_inputs=True, share_outputs=True), arrays)


def _openvino_f32(subject: Subject, threads: int) -> Opened:
    return _openvino(subject, threads, INFERENCE_PRECISION_HINT="f32")


OPENERS: dict[str, Callable[[Subject, int], Opened]] = {
    OURS: _ours,
    ORT: _ort,
    OPENVINO: _openvino,
    OPENVINO_F32: _openvino_f32,
}


def flat(outputs: Any) -> list[Array]:
    """Outputs as arrays: a sequence becomes its members, a map its values in the order of its keys."""
    arrays: list[Array] = []
    for output in outputs:
        if isinstance(output, np.ndarray):
            arrays.append(output)
        elif isinstance(output, dict):
            arrays.append(np.array([output[key] for key in sorted(output)]))
        elif isinstance(output, list):
            arrays += flat(output)
        else:
            arrays.append(np.asarray(output))
    return arrays
