"""Times matrix products on this machine: a Python module of its own, built once and found in the build cache after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ortisan.codegen.cpu.build import build_library
from ortisan.codegen.cpu.folders import TIMER_FOLDERS
from ortisan.codegen.cpu.isa import Isa
from ortisan.codegen.render import plain_files, read_header, render
from ortisan.codegen.tools.binding import import_binding
from ortisan.codegen.tools.cmake import KERNEL_FLAGS

_NAME = "ortisan_tune"


@dataclass(frozen=True)
class TimerSource:
    library: str
    isa: str
    flags: tuple[str, ...]


def render_timer(isa: Isa) -> dict[str, str]:
    """The sources of the module, file name -> content."""
    files = {**plain_files(*TIMER_FOLDERS), "thread_pool.h": read_header("binding/thread_pool.h")}
    files["CMakeLists.txt"] = render(
        "cpu/tune/CMakeLists.txt.j2", TimerSource(_NAME, isa.name, (*isa.flags, *KERNEL_FLAGS))
    )
    return files


def load_timer(isa: Isa, on_progress: Callable[[str], None] | None = None) -> Any:
    """The module, with its `Timer`. A `ToolchainError` says why it can't be built or loaded."""
    built = build_library(render_timer(isa), name=_NAME, isa=isa, bindings=True, on_progress=on_progress)
    return import_binding(built.binding)
