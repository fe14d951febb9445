"""The generated sources of a compilation, and their build, for every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ortisan.codegen.ait.build import build_cuda_library
from ortisan.codegen.ait.detect import find_aitemplate
from ortisan.codegen.ait.library import render_cuda_library
from ortisan.codegen.cpu.build import Built, build_library
from ortisan.codegen.cpu.library import render_library
from ortisan.errors import OptionError
from ortisan.pipeline.compilation import Compilation

Sources: TypeAlias = "dict[str, str | bytes]"
Progress: TypeAlias = "Callable[[str], None] | None"


def render_sources(compiled: Compilation) -> Sources:
    """The generated source folder, file name -> content."""
    names = {"name": compiled.name, "domain": compiled.domain}
    target = compiled.target
    if target.isa is not None:
        return {**render_library(compiled.cpu_plans, ops=compiled.ops, isa=target.isa, **names)}
    if target.kind == "cuda":
        return render_cuda_library(
            compiled.ait_models,
            ops=compiled.ops,
            architectures=target.architectures,
            fast_math=compiled.options.fast_math,
            **names,
        )
    raise OptionError(f"target='{target}' runs in numpy and has nothing to generate; use target='cpu'")


def build_sources(
    compiled: Compilation, *, bindings: bool = False, sanitize: str | None = None, on_progress: Progress = None
) -> tuple[Sources, Built]:
    sources = render_sources(compiled)
    target = compiled.target
    if target.isa is not None:
        built = build_library(
            sources, name=compiled.name, isa=target.isa, bindings=bindings, sanitize=sanitize, on_progress=on_progress
        )
        return sources, built
    if bindings or sanitize is not None:
        raise OptionError(f"bindings and sanitize are for CPU targets; {target} runs in ONNX Runtime only")
    built = build_cuda_library(
        sources,
        name=compiled.name,
        architectures=target.architectures,
        install=find_aitemplate(),
        on_progress=on_progress,
    )
    return sources, built
