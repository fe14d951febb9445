"""The demo: a BERT encoder with random weights, compiled, verified at several sizes and masks, and timed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from ortisan.checks.bench import Bench, time_pair
from ortisan.checks.isolated import Isolated
from ortisan.checks.samples import Case, Sampler
from ortisan.checks.session import artifact_session, reference_session, stock_session
from ortisan.checks.verify import Verification, verify_session
from ortisan.errors import OrtisanError, VerifyError
from ortisan.models import BertSize, bert
from ortisan.pipeline.build import build
from ortisan.pipeline.compile import Progress
from ortisan.runtime.artifact import Artifact
from ortisan.runtime.folder import check_replaceable

MAX_ABS = 5e-5
"""The largest error the demo accepts; its outputs are of order 1."""
MIN_SHARE = 0.95
SMALL = BertSize(layers=2, hidden=128, heads=4, intermediate=512, vocabulary=1000, positions=128)
SIZES = ((1, 1), (1, 8), (2, 17), (4, 32), (1, 128))
"""Batch and sequence of the inputs it is verified on."""


@dataclass(frozen=True)
class Demo:
    """What the demo made and measured."""

    artifact: Artifact
    parameters: int
    onnx_nodes: int
    verification: Verification
    benches: tuple[Bench, ...]

    @property
    def share(self) -> float:
        """The part of the floating-point operations inside the custom ops."""
        return float(self.artifact.manifest["flops_share"])

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.artifact.folder),
            "parameters": self.parameters,
            "onnx_nodes": self.onnx_nodes,
            "ops": list(self.artifact.ops),
            "flops_share": self.share,
            "max_abs": self.verification.max_abs,
            "verification": self.verification.to_json(),
            "bench": [bench.to_json() for bench in self.benches],
        }


def run_demo(folder: Path, *, small: bool = False, on_progress: Progress = None) -> Demo:
    """Writes FOLDER/bert.onnx and the artifact FOLDER/bert. Raises `VerifyError` when the demo's promise fails."""
    say = on_progress or (lambda _: None)
    check_replaceable(folder / "bert")
    say("making the model")
    model = bert(SMALL if small else None)
    source = _save(model, folder)
    artifact = build(source, folder / "bert", keep="all", verify=False, on_progress=on_progress)
    say("verifying at several sizes, with and without padding")
    sampler = Sampler(source)
    benches = []
    with Isolated() as runner:
        session, reference = artifact_session(artifact), reference_session(source)
        verification = verify_session(runner, session, reference, _cases(sampler)).check()
        for threads in sorted({1, os.cpu_count() or 1}):
            say(f"timing with {threads} thread{'s' if threads > 1 else ''}")
            compiled, stock = artifact_session(artifact, threads=threads), stock_session(source, threads=threads)
            benches.append(time_pair(runner, compiled, stock, sampler.timed()))
    parameters = sum(math.prod(value.shape.numpy()) for value in model.graph.initializers.values() if value.shape)
    demo = Demo(artifact, parameters, sum(1 for _ in model.graph), verification, tuple(benches))
    _check(demo)
    return demo


def _save(model: ir.Model, folder: Path) -> Path:
    path = folder / "bert.onnx"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ir.save(model, path, external_data="bert.onnx.data")
    except OSError as error:
        raise OrtisanError(f"the demo can't write to '{folder}': {error.strerror or error}") from error
    return path


def _cases(sampler: Sampler) -> Iterator[list[Case]]:
    for seed, (batch, sequence) in enumerate(SIZES):
        for padded in (False, True) if sequence > 1 else (False,):
            yield [sampler.case({"batch": batch, "sequence": sequence}, padded=padded, seed=seed)]


def _check(demo: Demo) -> None:
    if demo.verification.max_abs > MAX_ABS:
        raise VerifyError(
            f"the demo's largest error is {demo.verification.max_abs:.2g}, expected at most {MAX_ABS:.0e}"
        )
    if demo.share <= MIN_SHARE:
        raise VerifyError(
            f"only {demo.share:.1%} of the demo's operations were compiled, expected over {MIN_SHARE:.0%}"
        )
