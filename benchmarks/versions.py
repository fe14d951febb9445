"""`python -m benchmarks.versions OLD`: builds of another checkout of Ortisan and of this one, in turns.

For a change that is not meant to change speed. Every workload is built by both with the cost model's blocking, so that
what tuning found on the day does not count, and runs in one process on the same inputs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnxruntime as ort
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.timing import Effort, best_and_median, take_turns
from benchmarks.workloads import WORKLOADS, Workload
from ortisan.converter.read.load import load_model
from ortisan.converter.save import save_with_external_data

HERE = Path(__file__).parent.parent
_BUILD = """
import sys, ortisan
model, folder, name, feeds, tune, cache = sys.argv[1:]
ortisan.build(model, folder, name=name, inputs=feeds, keep="all", verify=False, tune=tune, cache=cache)
"""


def build_by(checkout: Path, workload: Workload, place: Path, name: str, tune: str) -> Path:
    """Builds the model in `place`, with its inputs there, into the folder NAME."""
    cache = "in-place" if workload.capacity else "as-is"
    arguments = ["model.onnx", name, workload.key, "feeds.npz", tune, cache]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    subprocess.run([sys.executable, "-c", _BUILD, *arguments], env=environment, cwd=place, check=True)
    return place / name


def open_built(folder: Path, threads: int) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(str(next(folder.glob("lib*.so"))))
    return ort.InferenceSession(next(folder.glob("*.onnx")), options, providers=["CPUExecutionProvider"])


def main(
    old: Annotated[Path, typer.Argument(help="A checkout of the version to compare with.")],
    only: Annotated[str, typer.Option(help="Workloads, comma-separated; all quick ones if not given.")] = "",
    tune: Annotated[str, typer.Option(help="auto|off|full, for both.")] = "off",
    seconds: Annotated[float, typer.Option(help="For each workload and number of threads.")] = 10.0,
) -> None:
    """Prints how many times as fast the builds of this checkout are, by best and by median times."""
    wanted = [w for w in WORKLOADS if (w.name in only.split(",") if only else w.quick)]
    table = Table("workload", "threads", "old ms", "new ms", "best", "median", "equal")
    for workload in wanted:
        with tempfile.TemporaryDirectory(prefix="ortisan-versions-") as place:
            for row in _compare(workload, old.absolute(), Path(place), tune, seconds):
                table.add_row(*row)
    Console(width=100).print(table)


def _compare(workload: Workload, old: Path, place: Path, tune: str, seconds: float) -> list[tuple[str, ...]]:
    save_with_external_data(load_model(workload.make()), place, "model")
    inputs = workload.our_feeds()
    np.savez(place / "feeds.npz", **inputs)
    folders = {name: build_by(tree, workload, place, name, tune) for name, tree in (("old", old), ("new", HERE))}
    rows = []
    for threads in sorted({1, len(os.sched_getaffinity(0))}):
        sessions = {name: open_built(folder, threads) for name, folder in folders.items()}
        outputs = {name: session.run(None, inputs) for name, session in sessions.items()}
        equal = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(outputs["old"], outputs["new"], strict=True))
        runs = {name: (lambda s=session: s.run(None, inputs)) for name, session in sessions.items()}
        times = {name: best_and_median(found) for name, found in take_turns(runs, Effort(seconds, 8)).items()}
        (old_best, old_median), (new_best, new_median) = times["old"], times["new"]
        ratios = (f"{old_best / new_best:.3f}", f"{old_median / new_median:.3f}")
        rows.append((workload.name, str(threads), f"{old_best:.3f}", f"{new_best:.3f}", *ratios, str(equal)))
    return rows


if __name__ == "__main__":
    typer.run(main)
