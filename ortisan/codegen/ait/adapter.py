"""Asks the real AITemplate, in a process of its own: what it can't take of a graph, and its sources for the rest."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from ortisan.codegen.ait.detect import check_import, import_paths
from ortisan.codegen.ait.model import AitConstant, AitInstall, AitModel, AitTensor
from ortisan.codegen.ait.prepare import Prepared, prepare
from ortisan.codegen.ait.program import Program
from ortisan.codegen.ait.worker.marks import PROGRESS
from ortisan.codegen.tools.cache_place import make_cache_folder
from ortisan.codegen.tools.cuda import find_cuda, find_curand
from ortisan.codegen.tools.toolchain import gpus, run_tool
from ortisan.errors import ToolchainError
from ortisan.registry.graph import Graph

WORKER = Path(__file__).parent / "worker" / "__main__.py"
_RENAMED = {"index_select": ("index_select_kernel",)}
"""Op -> kernels of fixed names with external linkage: sources of two such ops in one library would collide."""


@dataclass(frozen=True)
class AitSettings:
    """What AITemplate generates for. Tiles are timed on the GPUs `devices`, chosen by size where there are none."""

    arch: str
    half: bool = False
    tf32: bool = False
    fast_math: bool = False
    devices: tuple[int, ...] = ()


class Adapter:
    """One AITemplate and the settings to use it with. What it made once, this process does not make again."""

    _made: ClassVar[dict[str, _Made]] = {}

    def __init__(self, install: AitInstall, settings: AitSettings, say: Callable[[str], None]) -> None:
        self.install = install
        self.settings = settings
        self._say = say
        self._prepared: WeakKeyDictionary[Graph, Prepared] = WeakKeyDictionary()

    def rules(self, graph: Graph) -> Mapping[str, str]:
        """What a rule speaks against, without asking AITemplate."""
        return self._prepare(graph).refused

    def refusals(self, graphs: Sequence[Graph]) -> list[Mapping[str, str]]:
        """For each graph what AITemplate can't take of it. Graphs without rule against them are really generated."""
        prepared = [self._prepare(graph) for graph in graphs]
        clean = [each for each in prepared if not each.refused]
        if len(clean) == len(prepared):
            self._make(clean)
            return [self._made[self._key(each.program)].refused(each.program) for each in prepared]
        return [each.refused for each in prepared]

    def model(self, graph: Graph) -> AitModel:
        """AITemplate's sources for a graph that `refusals` had nothing against."""
        prepared = self._prepare(graph)
        if prepared.refused:
            raise ToolchainError(f"AITemplate can't take '{graph.name}': {next(iter(prepared.refused.values()))}")
        self._make([prepared])
        made, program = self._made[self._key(prepared.program)], prepared.program
        if made.failures:
            raise ToolchainError(f"AITemplate refuses '{graph.name}': {made.failures[0]['reason']}")
        known = set(made.inputs)
        inputs = tuple(AitTensor(f"i{i}_", i) for i in range(len(graph.inputs)) if f"i{i}_" in known)
        outputs = tuple(AitTensor(f"o{i}_", i) for i in range(len(graph.outputs)))
        constants = tuple(AitConstant(c.name, np.ascontiguousarray(c.data)) for c in program.data)
        tiles = tuple(f"{count} x {name}" for name, count in made.tiles.items())
        return AitModel(
            graph,
            inputs,
            outputs,
            constants,
            made.files,
            _renames(made.files),
            notes=(*prepared.notes, *tiles),
            symbols=tuple(program.sources[symbol.name] for symbol in program.symbols),
            checked=program.checked,
            shared=prepared.shared,
            profiled=bool(self.settings.devices),
        )

    def _prepare(self, graph: Graph) -> Prepared:
        """Prepares a graph once, as long as it or a copy with the same bounds is alive: the result holds weights."""
        for known, prepared in self._prepared.items():
            if _is_copy(known, graph):
                return self._prepared.setdefault(graph, prepared)
        return self._prepared.setdefault(graph, self._prepared_anew(graph))

    def _prepared_anew(self, graph: Graph) -> Prepared:
        return prepare(graph, half=self.settings.half, architecture=self.settings.arch)

    def _key(self, program: Program) -> str:
        text = json.dumps([program.to_json(), asdict(self.settings), self.install.commit, self.install.version])
        return hashlib.sha256(text.encode()).hexdigest()

    def _make(self, prepared: Sequence[Prepared]) -> None:
        """Runs one worker for all programs that have not been made yet."""
        missing = {self._key(each.program): each.program for each in prepared}
        missing = {key: program for key, program in missing.items() if key not in self._made}
        if not missing:
            return
        self._say("generating AITemplate's sources")
        tasks = [{"mode": "generate", "program": program.to_json()} for program in missing.values()]
        with tempfile.TemporaryDirectory(prefix="ortisan-ait-") as folder:
            results = run_worker(self.install, self.settings, tasks, Path(folder), self._say)
            for index, (key, result) in enumerate(zip(missing, results, strict=True)):
                self._made[key] = _Made.read(result, Path(folder, f"src-{index}"))


def _is_copy(a: Graph, b: Graph) -> bool:
    same = a.nodes is b.nodes and a.inputs is b.inputs and a.outputs is b.outputs
    return same and a.guards == b.guards and a.bounds == b.bounds


@dataclass(frozen=True, eq=False)
class _Made:
    failures: tuple[Mapping[str, Any], ...]
    inputs: tuple[str, ...]
    tiles: Mapping[str, int]
    files: Mapping[str, bytes]

    @classmethod
    def read(cls, result: Mapping[str, Any], folder: Path) -> _Made:
        files = {file.name: file.read_bytes() for file in sorted(folder.iterdir())} if folder.is_dir() else {}
        return cls(tuple(result["failures"]), tuple(result.get("inputs", ())), result.get("tiles", {}), files)

    def refused(self, program: Program) -> dict[str, str]:
        return {program.origin(failure["origin"]): failure["reason"] for failure in self.failures}


def run_worker(
    install: AitInstall,
    settings: AitSettings,
    tasks: Sequence[Mapping[str, Any]],
    folder: Path,
    say: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """The result of each task; a `ToolchainError` when AITemplate failed in a way that no node is to blame for."""
    job = {
        "tasks": list(tasks),
        "paths": import_paths(install),
        "cutlass": str(install.cutlass),
        "arch": settings.arch,
        "no_tf32": not settings.tf32,
        "fast_math": settings.fast_math,
        **_profiling(install, settings),
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    log = folder / "log.txt"

    def listen(line: str) -> None:
        if line.startswith(PROGRESS):
            say(line.removeprefix(PROGRESS))

    # AITemplate goes through sets in places: the same order gives the same sources.
    command = [install.python, str(WORKER), str(folder)]
    code = run_tool(command, log=log, on_line=listen, environment={"PYTHONHASHSEED": "0", "TMPDIR": str(folder)})
    places = [folder / f"result-{index}.json" for index in range(len(tasks))]
    if code != 0 or not all(place.is_file() for place in places):
        check_import(install)
        raise ToolchainError(f"AITemplate's process ended with code {code}: {_last_line(log)}")
    results: list[dict[str, Any]] = [json.loads(place.read_text(encoding="utf-8")) for place in places]
    for result in results:
        if "error" in result:
            raise ToolchainError(result.get("told") or f"AITemplate failed: {result['error']}")
    return results


def _profiling(install: AitInstall, settings: AitSettings) -> dict[str, Any]:
    """What timing needs. Times of one kind of GPU, arithmetic and AITemplate say nothing about those of another."""
    if not settings.devices:
        return {"devices": [], "nvcc": "nvcc"}
    cuda = find_cuda()
    around = [gpus()[device] for device in settings.devices]
    digest = hashlib.sha256(json.dumps([around, settings.tf32, install.commit, cuda.version]).encode()).hexdigest()
    return {
        "devices": list(settings.devices),
        "nvcc": str(cuda.nvcc),
        "curand": str(find_curand(cuda, install.python)),
        "profile_cache": str((make_cache_folder() / "profiles" / digest[:16]).absolute()),
    }


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _renames(files: Mapping[str, bytes]) -> dict[str, dict[str, str]]:
    renames: dict[str, dict[str, str]] = {}
    for op, kernels in _RENAMED.items():
        sources = [name for name in sorted(files) if name.startswith(f"{op}_") and name.endswith(".cu")]
        for number, source in enumerate(sources if len(sources) > 1 else ()):
            renames[source] = {kernel: f"{kernel}_{number}" for kernel in kernels}
    return renames
