"""Times every workload against stock ONNX Runtime, interleaved, and prints the ratios. Outputs are compared first."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import ortisan
from benchmarks.workloads import WORKLOADS, Workload, as_proto
from ortisan.examine import bench, verify


def measure(workload: Workload, folder: Path, threads: list[int], runs: int | None) -> list[dict[str, Any]]:
    """One row per number of threads."""
    model = as_proto(workload.make())
    feeds = workload.feeds()
    started = time.perf_counter()
    artifact = ortisan.build(model, folder / workload.name, name=workload.name, keep="all", verify=False)
    built = time.perf_counter() - started
    checked = verify(artifact, model=model, inputs=feeds).verification
    checked.check()
    rows = []
    for count in threads:
        result = bench(artifact, model=model, inputs=feeds, threads=count, runs=runs)
        rows.append(
            {
                "workload": workload.name,
                "title": workload.title,
                "threads": count,
                "runs": result.runs,
                "ms": result.compiled.best,
                "ort_ms": result.ort.best,
                "ratio_best": result.ort.best / result.compiled.best,
                "ratio_median": result.ratio,
                "max_abs_error": checked.max_abs,
                "build_seconds": built,
            }
        )
    return rows


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer runs, and only the short workloads.")] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help="Names of workloads.")] = None,
    output: Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")] = None,
) -> None:
    threads = sorted({1, os.cpu_count() or 1})
    rows: list[dict[str, Any]] = []
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        for workload in WORKLOADS:
            if (only and workload.name not in only) or (quick and not workload.quick and not only):
                continue
            with console.status(workload.title):
                rows += measure(workload, Path(folder), threads, 20 if quick else None)
    table = Table("workload", "threads", "ms", "ORT ms", "ratio (best)", "ratio (median)", "max error")
    for row in rows:
        figures = (row[key] for key in ("ms", "ort_ms", "ratio_best", "ratio_median"))
        table.add_row(row["title"], str(row["threads"]), *(f"{x:.3g}" for x in figures), f"{row['max_abs_error']:.1e}")
    console.print(table)
    console.print("ratio: ONNX Runtime's time divided by ours, same inputs, run in turn")
    if output is not None:
        output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
