"""Runs the programs of a job, each in a forked process, and writes what came of it."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import aitemplate.compiler  # noqa: F401  (imported once, before the forks)

from ortisan.codegen.ait.worker.check import check_program
from ortisan.codegen.ait.worker.construct import Construction
from ortisan.codegen.ait.worker.generate import generate
from ortisan.codegen.ait.worker.order import fix_order
from ortisan.codegen.ait.worker.profiling import ProfilingError


def run_job(job: dict[str, Any], folder: Path) -> int:
    for index, task in enumerate(job["tasks"]):
        child = os.fork()
        if child == 0:
            os._exit(_in_child(job, task, folder, index))
        _, status = os.waitpid(child, 0)
        print(f"program {index + 1} of {len(job['tasks'])}: {'done' if status == 0 else 'failed'}", flush=True)
    return 0


def _in_child(job: dict[str, Any], task: dict[str, Any], folder: Path, index: int) -> int:
    result: dict[str, Any]
    try:
        result = _run(job, task, folder, index)
    except Exception as error:
        traceback.print_exc()
        told = str(error) if isinstance(error, ProfilingError) else None
        result = {"failures": [], "error": f"{type(error).__name__}: {error}", "told": told}
    (folder / f"result-{index}.json").write_text(json.dumps(result), encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    return 0 if "error" not in result else 1


def _run(job: dict[str, Any], task: dict[str, Any], folder: Path, index: int) -> dict[str, Any]:
    fix_order()
    construction = Construction(task["program"])
    construction.run()
    if construction.failures or task["mode"] == "construct":
        return {"failures": construction.failures, "shapes": construction.compared}
    if task["mode"] == "check":
        return check_program(job, construction, folder / f"data-{index}.npz", folder / f"work-{index}")
    return generate(job, construction, folder / f"work-{index}", folder / f"src-{index}")
