"""What a build writes into the staged folder, before it knows whether all of it stays."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from ortisan.checks.inputs import Cases
from ortisan.checks.isolated import Runner
from ortisan.checks.session import SessionSpec, compiled_session
from ortisan.checks.source_runs import SourceRuns
from ortisan.codegen.backend import Say
from ortisan.converter.save import save_with_external_data
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.convert import substitute_ops
from ortisan.pipeline.departures import FOLDER as DEPARTURES
from ortisan.pipeline.emulate import Emulator
from ortisan.pipeline.generate import build_sources, render_sources
from ortisan.pipeline.manifest import Written, describe_artifact
from ortisan.pipeline.options import Options
from ortisan.pipeline.source import Source
from ortisan.runtime.artifact import Artifact, open_artifact
from ortisan.runtime.engine import onnxruntime
from ortisan.runtime.folder import write_files
from ortisan.runtime.manifest import MANIFEST, add_hashes, file_sizes, folder_hash, write_manifest

_Hashes: TypeAlias = "tuple[dict[str, dict[str, Any]], dict[str, Any]]"


@dataclass(frozen=True, eq=False)
class Job:
    """What the steps of a build share."""

    source: Source
    options: Options
    cases: Cases
    runs: SourceRuns
    say: Say
    emulator: Emulator | None = None
    """What runs custom ops that are for GPUs, where that was asked for."""

    @property
    def runner(self) -> Runner:
        """What runs the compiled model."""
        return self.runs.runner if self.emulator is None else self.emulator


@dataclass(frozen=True, eq=False)
class Draft:
    """What lies in the staged folder, all but the final manifest."""

    folder: Path
    compiled: Compilation
    facts: Written
    hashes: Future[_Hashes]
    """The files are hashed while their model is verified."""

    def written(self) -> Written:
        files, described = self.hashes.result()
        return replace(self.facts, files=files, source=described)

    @functools.cached_property
    def _artifact(self) -> Artifact:
        write_manifest(self.folder, describe_artifact(self.compiled, self.facts))
        return open_artifact(self.folder)

    def session(self, threads: int | None = None) -> SessionSpec:
        return compiled_session(self._artifact, threads=threads)

    @property
    def library(self) -> Path:
        return self.folder / (self.facts.library or "")

    @property
    def departures(self) -> Path:
        return self.folder / DEPARTURES


def write_draft(staged: Path, compiled: Compilation, job: Job) -> Draft:
    """Writes the model, the library and the sources. Without any op left, the model is the caller's own."""
    name, options = compiled.name, job.options
    library, compiler = None, None
    model = job.runs.beside(lambda: _write_model(staged, compiled, job))
    try:
        if compiled.ops:
            library = f"lib{name}.so"
            sources = render_sources(compiled)
            if not options.sources_only:
                if job.emulator is not None:
                    built = job.emulator.use(sources, name)
                else:
                    built = build_sources(compiled, sources, on_progress=job.say)
                compiler = built.compiler
                write_files(staged, {library: built.library.read_bytes()})
            write_files(staged / "src", sources)
        job.say("writing the model")
    finally:
        wait([model])  # whatever happened, nothing is written into the folder from here on
    model.result()
    files = file_sizes(staged, sorted(f.name for f in staged.iterdir() if f.is_file() and f.name != MANIFEST))
    facts = Written(
        model=f"{name}.onnx",
        library=library,
        source={},
        files=files,
        sources_sha256=folder_hash(staged / "src") if compiled.ops else None,
        compiler=compiler,
        onnxruntime=None if options.sources_only else onnxruntime().__version__,
    )
    hashes = job.runs.beside(lambda: (add_hashes(staged, files), job.source.describe()))
    return Draft(staged, compiled, facts, hashes)


def _write_model(staged: Path, compiled: Compilation, job: Job) -> None:
    if compiled.ops:
        save_with_external_data(substitute_ops(compiled), staged, compiled.name)
    else:
        job.source.write_unchanged(staged, compiled.name)


def write_without(draft: Draft, reasons: Mapping[int, str], job: Job) -> Draft:
    """Writes the folder again, some of the subgraphs (index -> reason) left to ONNX Runtime."""
    return write_again(draft, draft.compiled.without(reasons), job)


def write_again(draft: Draft, compiled: Compilation, job: Job) -> Draft:
    """Writes the folder anew, for another compilation of the model."""
    draft.hashes.result()
    for item in list(draft.folder.iterdir()):
        if item.is_dir() and item.name != DEPARTURES:
            shutil.rmtree(item)
        elif item.is_file():
            item.unlink()
    return write_draft(draft.folder, compiled, job)
