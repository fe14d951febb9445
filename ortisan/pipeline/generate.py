"""generate: the plans of a compilation rendered to sources, and built to a shared library."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ortisan.codegen.backend import Built, Sources
from ortisan.errors import UnsupportedError
from ortisan.pipeline.compilation import Compilation
from ortisan.pipeline.compile import Progress
from ortisan.pipeline.unforeseen import raises_ortisan_errors
from ortisan.runtime.folder import staged_folder, write_files


@dataclass(frozen=True)
class CustomOpLibrary:
    """A built library: `path` is the shared library to register in ONNX Runtime's session options."""

    path: Path | None
    """None when only the sources were written."""
    domain: str
    ops: tuple[str, ...]
    sources: Path
    binding: Path | None
    compiler: str
    seconds: float
    cached: bool


@raises_ortisan_errors
def generate(
    compiled: Compilation,
    folder: str | os.PathLike[str],
    *,
    bindings: bool = False,
    sources_only: bool = False,
    sanitize: str | None = None,
    on_progress: Progress = None,
) -> CustomOpLibrary:
    """Renders the sources into folder/src and builds the shared library into folder.

    `bindings=True` also builds a Python module that runs the graphs on numpy arrays without ONNX Runtime, for CPUs.
    """
    if not compiled.ops:
        raise UnsupportedError(f"'{compiled.name}' has no compiled subgraph, so there is nothing to generate")
    place = Path(folder)
    sources = render_sources(compiled)
    built = None
    if not sources_only:
        built = build_sources(compiled, sources, bindings=bindings, sanitize=sanitize, on_progress=on_progress)
    with staged_folder(place) as staged:
        write_files(staged / "src", sources)
        for file in (built.library, built.binding) if built else ():
            if file is not None:
                write_files(staged, {file.name: file.read_bytes()})
    return CustomOpLibrary(
        place / built.library.name if built else None,
        compiled.domain,
        compiled.ops,
        place / "src",
        place / built.binding.name if built and built.binding else None,
        built.compiler if built else "",
        built.seconds if built else 0.0,
        built.cached if built else False,
    )


def render_sources(compiled: Compilation) -> Sources:
    """The generated source folder."""
    return compiled.target.render(compiled.plans, compiled.names)


def build_sources(
    compiled: Compilation,
    sources: Sources,
    *,
    bindings: bool = False,
    sanitize: str | None = None,
    on_progress: Progress = None,
) -> Built:
    return compiled.target.build(
        sources, name=compiled.name, bindings=bindings, sanitize=sanitize, on_progress=on_progress
    )
