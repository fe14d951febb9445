"""`python -m benchmarks.precision`: what each precision on CPUs gains and costs, beside ONNX Runtime and OpenVINO.

OpenVINO takes part twice: at its defaults, where it multiplies bfloat16 if the CPU does, and forced to float32. Errors
are those of the first output, by its largest element, to ONNX Runtime with its optimizations off.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import ortisan
from benchmarks.measure import save_model
from benchmarks.peers import Opened, Subject, Unavailable, open_openvino, open_ort, open_ours
from benchmarks.timing import Effort, best_and_median, take_turns
from benchmarks.workloads import WORKLOADS, Workload
from ortisan.runtime.engine import open_session, quiet_options

PRECISIONS: tuple[Any, ...] = ("keep", "bf16", "weights-bf16", "weights-int8")
DEFAULT = "bert,gpt2_decode_512,mlp"


def build_all(workload: Workload, folder: Path, precisions: tuple[Any, ...]) -> dict[str, Subject]:
    model = save_model(workload, folder)
    feeds = workload.feeds()
    artifacts = {
        precision: ortisan.build(model, folder / precision, precision=precision, keep="all", inputs=[feeds])
        for precision in precisions
    }
    return {precision: Subject(workload, model, feeds, artifact) for precision, artifact in artifacts.items()}


def open_all(subjects: Mapping[str, Subject], threads: int) -> dict[str, Opened]:
    first = next(iter(subjects.values()))
    opened = {"ORT": open_ort(first, threads)}
    for name, precision in (("OpenVINO", None), ("OpenVINO f32", "f32")):
        try:
            opened[name] = open_openvino(first, threads, precision)
        except Unavailable:
            continue
    return opened | {name: open_ours(subject, threads) for name, subject in subjects.items()}


def error(opened: Opened, expected: Any) -> float:
    """Of the first output, by its largest element."""
    return float(np.abs(opened.arrays(opened.run())[0] - expected).max() / np.abs(expected).max())


def rows(workload: Workload, folder: Path, precisions: tuple[Any, ...], seconds: float) -> list[tuple[str, ...]]:
    subjects = build_all(workload, folder, precisions)
    first = next(iter(subjects.values()))
    expected = open_session(first.model, quiet_options(optimizations="none")).run(None, first.feeds)[0]
    found = []
    for threads in sorted({1, len(os.sched_getaffinity(0))}):
        opened = open_all(subjects, threads)
        errors = {name: error(each, expected) for name, each in opened.items()}
        times = take_turns({name: each.run for name, each in opened.items()}, Effort(seconds, 6))
        best = {name: best_and_median(each) for name, each in times.items()}
        for name, (fastest, median) in best.items():
            ratios = [f"{best[peer][0] / fastest:.2f}" if peer in best else "-" for peer in ("ORT", "OpenVINO")]
            figures = f"{fastest:.3g}", f"{median:.3g}", *ratios, f"{errors[name]:.1e}"
            found.append((workload.title, str(threads), name, *figures))
    return found


def main(
    only: Annotated[str, typer.Option(help="Workloads, comma-separated.")] = DEFAULT,
    precisions: Annotated[str, typer.Option(help="Precisions, comma-separated.")] = ",".join(PRECISIONS),
    seconds: Annotated[float, typer.Option(help="For each workload and number of threads.")] = 20.0,
) -> None:
    """Prints times, ratios and errors as a table in Markdown's form."""
    known = {workload.name: workload for workload in WORKLOADS}
    table = Table("workload", "threads", "who", "best ms", "median", "ORT /", "OpenVINO /", "error")
    for name in only.split(","):
        if name not in known:
            raise typer.BadParameter(f"there is no '{name}'; the choice is: {', '.join(known)}", param_hint="--only")
        with tempfile.TemporaryDirectory(prefix="ortisan-precision-") as folder:
            find = functools.partial(rows, known[name], Path(folder), tuple(precisions.split(",")))
            for row in find(seconds):
                table.add_row(*row)
    Console(width=110).print(table)


if __name__ == "__main__":
    typer.run(main)
