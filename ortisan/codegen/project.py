"""Completes generated sources into a folder that CMake can build by itself: glue, headers and CMakeLists.txt."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.resources import files

import jinja2

from ortisan.codegen.isa import Isa
from ortisan.errors import OptionError


@dataclasses.dataclass(frozen=True)
class CMakeContext:
    """What CMakeLists.txt.j2 is rendered with."""

    library: str
    sources: tuple[str, ...]
    isa: str
    flags: tuple[str, ...]
    features: tuple[str, ...]


def project_files(generated: Mapping[str, str], *, name: str, isa: Isa) -> dict[str, str]:
    """The whole src folder, file name -> text, of a library called `name` (a C identifier).

    `generated` holds the .cpp files that define the graphs and the tables of `graph.h`, and headers of their own.
    """
    if not name.isidentifier() or not name.isascii():
        raise OptionError(f"A library can't be called {name!r}; use letters, digits and '_', and no digit first.")
    templates = files("ortisan") / "templates"
    project = {
        file.name: file.read_text(encoding="utf-8")
        for folder in ("cpu", "ort", "binding")
        for file in (templates / folder).iterdir()
        if file.name.endswith((".h", ".cpp", ".map"))
    }
    if clash := sorted(project.keys() & generated.keys()):
        raise ValueError(f"generated files have the names of Ortisan's own: {', '.join(clash)}")
    kernels = tuple(sorted(file for file in generated if file.endswith(".cpp")))
    context = CMakeContext(name, kernels, isa.name, isa.flags, isa.features)
    cmake = (templates / "cmake" / "CMakeLists.txt.j2").read_text(encoding="utf-8")
    project |= {**generated, "CMakeLists.txt": _render(cmake, context)}
    return dict(sorted(project.items()))


def _render(template: str, context: CMakeContext) -> str:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    values = {field.name: getattr(context, field.name) for field in dataclasses.fields(context)}
    return environment.from_string(template).render(values)
