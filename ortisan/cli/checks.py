"""verify and bench at several sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ortisan
from ortisan.checks.bench import Bench
from ortisan.cli.sizes import relabelled
from ortisan.pipeline.check import Checked
from ortisan.runtime.artifact import open_artifact


def verify_at(folder: Path, sizes: Sequence[Mapping[str, int]], **given: Any) -> tuple[Checked, bool]:
    """The figures of all sizes, and whether anything is compiled."""
    artifact = open_artifact(folder)
    fixed = artifact.manifest["options"]["dims"]
    found = [ortisan.verify(folder, dims=dims, **given) for dims in sizes]
    figures = [
        figure
        for dims, checked in zip(sizes, found, strict=True)
        for figure in relabelled(checked.verification.figures, {**fixed, **dims})
    ]
    departure = next((checked.departure for checked in found if checked.departure is not None), None)
    work = [
        work
        for dims, checked in zip(sizes, found, strict=True)
        for work in relabelled(checked.verification.work, {**fixed, **dims})
    ]
    verification = replace(found[0].verification, figures=tuple(figures), work=tuple(work))
    return replace(found[0], verification=verification, departure=departure), bool(artifact.ops)


def bench_at(
    folder: Path, sizes: Sequence[Mapping[str, int]], on_progress: Callable[[str], None], **given: Any
) -> list[Bench]:
    fixed = open_artifact(folder).manifest["options"]["dims"]
    results: list[Bench] = []
    for number, dims in enumerate(sizes):
        on_progress(f"timing against ONNX Runtime{f' {number + 1}/{len(sizes)}' if len(sizes) > 1 else ''}")
        results += relabelled([ortisan.bench(folder, dims=dims, **given)], {**fixed, **dims})
    return results
