"""Proves a program without a GPU: AITemplate's graph, before and after its passes, is run in numpy on given inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from aitemplate import backend
from aitemplate.compiler import compiler
from aitemplate.compiler.transform import toposort

from ortisan.codegen.ait.worker.construct import Construction
from ortisan.codegen.ait.worker.generate import compile_sources
from ortisan.codegen.ait.worker.interpret import interpret
from ortisan.codegen.ait.worker.memory import Memory


class _PassesDone(Exception):
    def __init__(self, graph: Any) -> None:
        super().__init__()
        self.graph = graph


def check_program(job: dict[str, Any], construction: Construction, data: Path, work: Path) -> dict[str, Any]:
    """Writes the outputs of each case to out-N.npz, as CASE/before/NAME and CASE/after/NAME."""
    cases = _Cases(construction, data)
    outputs = cases.run("before", toposort(construction.outputs()))
    graph, ops = _after_passes(job, construction, work)
    outputs |= cases.run("after", graph)
    np.savez(data.with_name(data.name.replace("data-", "out-")), **outputs)
    return {"failures": [], "shapes": construction.compared, "ops": ops}


class _Cases:
    """Inputs and symbols by case, and the constants, out of the npz file: CASE/NAME and NAME."""

    def __init__(self, construction: Construction, data: Path) -> None:
        self.construction = construction
        with np.load(data) as file:
            given = {name: file[name] for name in file.files}
        self.constants = {name: array for name, array in given.items() if "/" not in name}
        self.cases: dict[str, dict[str, Any]] = {}
        for name, array in given.items():
            case, _, tensor = name.rpartition("/")
            if case:
                self.cases.setdefault(case, {})[tensor] = array

    def run(self, when: str, graph: Any) -> dict[str, Any]:
        outputs: dict[str, Any] = {}
        for case, arrays in self.cases.items():
            symbols = {name: int(arrays[name]) for name in self.construction.symbols}
            memory = Memory(symbols, {**self.constants, **arrays})
            outputs |= {f"{case}/{when}/{name}": array for name, array in interpret(graph, memory).items()}
        return outputs


def _after_passes(job: dict[str, Any], construction: Construction, work: Path) -> tuple[Any, dict[str, int]]:
    """The graph that AITemplate would write kernels for. What it folds on the GPU stays in it."""
    compiler.compiler.transform.constant_folding = lambda graph, *_: (graph, [], [])
    compiler.compiler.transform.profile = lambda *_: None

    def stop(graph: Any, *args: Any, **kwargs: Any) -> None:
        raise _PassesDone(graph)

    backend.codegen.gen_function_src = stop
    try:
        compile_sources(job, construction, work, kernels=False)
    except _PassesDone as done:
        names: dict[str, int] = {}
        for op in dict.fromkeys(op for tensor in done.graph for op in tensor._attrs["src_ops"]):
            names[op._attrs["op"]] = names.get(op._attrs["op"], 0) + 1
        return done.graph, dict(sorted(names.items()))
    raise RuntimeError("AITemplate did not come to its kernels")
