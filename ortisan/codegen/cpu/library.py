"""The source folder of a library: generated graphs, the plain headers they use, the ONNX Runtime glue, CMakeLists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ortisan.codegen.cpu.folders import LIBRARY_FOLDERS
from ortisan.codegen.cpu.functions import Functions
from ortisan.codegen.cpu.isa import Isa
from ortisan.codegen.cpu.plan import GraphPlan
from ortisan.codegen.cpu.source import render_graphs
from ortisan.codegen.render import plain_files, render
from ortisan.codegen.tables import LibrarySource
from ortisan.codegen.tools.cmake import KERNEL_FLAGS

_GRAPHS_PER_FILE = 64


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
    functions = Functions(plans)
    rendered = functions.render()
    for first in range(0, len(plans), _GRAPHS_PER_FILE):
        last = first + _GRAPHS_PER_FILE
        file = f"graphs_{first // _GRAPHS_PER_FILE}.cpp"
        rendered[file] = render_graphs(plans[first:last], first, ops[first:last], functions)
    rendered["library.cpp"] = render("graph/library.cpp.j2", LibrarySource(len(plans), domain))
    files = {**plain_files(*LIBRARY_FOLDERS), **rendered}
    flags = (*isa.flags, *KERNEL_FLAGS)
    build = BuildSource(name, isa.name, isa.machine, tuple(rendered), flags, isa.features)
    files["CMakeLists.txt"] = render("cmake/CMakeLists.txt.j2", build)
    return files
