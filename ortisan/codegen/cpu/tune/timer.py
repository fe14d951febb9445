"""Times matrix products on this machine: a Python module of its own, built once and found in the build cache after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ortisan.codegen.cpu.build import build_library
from ortisan.codegen.cpu.isa import Isa
from ortisan.codegen.render import TEMPLATES, read_header, render
from ortisan.codegen.tools.binding import import_binding
from ortisan.codegen.tools.cmake import KERNEL_FLAGS

_NAME = "ortisan_tune"
_FROM_BINDING = ("binding/thread_pool.h",)


@dataclass(frozen=True)
class TimerSource:
    library: str
    isa: str
    flags: tuple[str, ...]


def render_timer(isa: Isa) -> dict[str, str]:
    """The sources of the module, file name -> content."""
    own = [f"tune/{path.name}" for path in sorted((TEMPLATES / "tune").iterdir()) if path.suffix in (".h", ".cpp")]
    kernels = [f"cpu/{path.name}" for path in sorted((TEMPLATES / "cpu").glob("*.h"))]
    files = {Path(path).name: read_header(path) for path in (*kernels, *_FROM_BINDING, *own)}
    files["CMakeLists.txt"] = render(
        "tune/CMakeLists.txt.j2", TimerSource(_NAME, isa.name, (*isa.flags, *KERNEL_FLAGS))
    )
    return files


def load_timer(isa: Isa, on_progress: Callable[[str], None] | None = None) -> Any:
    """The module, with its `Timer`. A `ToolchainError` says why it can't be built or loaded."""
    built = build_library(render_timer(isa), name=_NAME, isa=isa, bindings=True, on_progress=on_progress)
    return import_binding(built.binding)
