"""The source folder of a library: generated graphs, the plain headers they use, the ONNX Runtime glue, CMakeLists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ortisan.codegen.cpu.folders import LIBRARY_FOLDERS
from ortisan.codegen.cpu.isa import Isa
from ortisan.codegen.cpu.plan import GraphPlan
from ortisan.codegen.cpu.source import render_file
from ortisan.codegen.render import plain_files, render
from ortisan.codegen.tables import LibrarySource
from ortisan.codegen.tools.cmake import KERNEL_FLAGS

_GRAPHS_PER_FILE = 16


@dataclass(frozen=True)
class BuildSource:
    library: str
    isa: str
    machine: str
    sources: tuple[str, ...]
    flags: tuple[str, ...]
    features: tuple[str, ...]


def render_library(
    plans: Sequence[GraphPlan], *, name: str, domain: str, ops: Sequence[str], isa: Isa
) -> dict[str, str]:
    """File name -> content. The same plans give the same bytes."""
    files = plain_files(*LIBRARY_FOLDERS)
    sources = []
    for first in range(0, len(plans), _GRAPHS_PER_FILE):
        last = first + _GRAPHS_PER_FILE
        file = f"graphs_{first // _GRAPHS_PER_FILE}.cpp"
        files[file] = render_file(plans[first:last], first, ops[first:last])
        sources.append(file)
    files["library.cpp"] = render("graph/library.cpp.j2", LibrarySource(len(plans), domain))
    flags = (*isa.flags, *KERNEL_FLAGS)
    build = BuildSource(name, isa.name, isa.machine, (*sources, "library.cpp"), flags, isa.features)
    files["CMakeLists.txt"] = render("cmake/CMakeLists.txt.j2", build)
    return files
