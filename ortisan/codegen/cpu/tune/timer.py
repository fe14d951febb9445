"""Times matrix products on this machine: a library of its own, built once and found in the build cache after."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ortisan.codegen.cpu.build import build_library
from ortisan.codegen.cpu.folders import TIMER_FOLDERS
from ortisan.codegen.cpu.isa import Isa
from ortisan.codegen.render import plain_files, read_header, render
from ortisan.codegen.tools.cmake import KERNEL_FLAGS
from ortisan.errors import ToolchainError

_NAME = "ortisan_tune"
_NO_MEMORY = 2
Numbers: TypeAlias = tuple[int, int, int, bool]
"""Of a blocking: depth, band, work, prefetch. Of a launch: depth, bands, groups, prefetch."""


@dataclass(frozen=True)
class TimerSource:
    library: str
    isa: str
    flags: tuple[str, ...]


def render_timer(isa: Isa) -> dict[str, str]:
    """The sources of the library, file name -> content."""
    files = {**plain_files(*TIMER_FOLDERS), "thread_pool.h": read_header("binding/thread_pool.h")}
    files["CMakeLists.txt"] = render(
        "cpu/tune/CMakeLists.txt.j2", TimerSource(_NAME, isa.name, (*isa.flags, *KERNEL_FLAGS))
    )
    return files


def load_timer(isa: Isa, on_progress: Callable[[str], None] | None = None) -> BuiltTimer:
    """A timer. A `ToolchainError` says why its library can't be built or loaded."""
    return BuiltTimer(build_library(render_timer(isa), name=_NAME, isa=isa, on_progress=on_progress).library)


class _Product(ctypes.Structure):
    """`OrtisanProduct` of templates/cpu/tune/timer.cpp."""

    _fields_ = (
        ("type", ctypes.c_char_p),
        ("rows", ctypes.c_int64),
        ("depth", ctypes.c_int64),
        ("columns", ctypes.POINTER(ctypes.c_int64)),
        ("column_count", ctypes.c_int64),
        ("blockings", ctypes.POINTER(ctypes.c_int64)),
        ("blocking_count", ctypes.c_int64),
    )


class BuiltTimer:
    """The functions of templates/cpu/tune/timer.cpp. A `ValueError` tells what makes no sense."""

    def __init__(self, library: Path) -> None:
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError as error:
            raise ToolchainError(f"'{library}' can't be loaded: {error}") from error
        self._library.ortisan_timer.restype = ctypes.c_void_p
        self._handle = ctypes.c_void_p(self._library.ortisan_timer())

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._library.ortisan_timer_free(self._handle)

    def launches(
        self, *, type: str, rows: int, depth: int, columns: Sequence[int], blockings: Sequence[Numbers]
    ) -> list[Numbers]:
        """What each blocking comes to on the instruction set that the library is built for."""
        results = (ctypes.c_int64 * (4 * len(blockings)))()
        product = _product(type, rows, depth, columns, blockings)
        self._call("ortisan_launches", ctypes.byref(product), results)
        return [
            (results[at], results[at + 1], results[at + 2], bool(results[at + 3])) for at in range(0, len(results), 4)
        ]

    def time_products(
        self,
        *,
        type: str,
        rows: int,
        depth: int,
        columns: Sequence[int],
        blockings: Sequence[Numbers],
        threads: int,
        copies: int,
        seconds: float,
    ) -> list[float]:
        """Best seconds of one product under each blocking. Each run reads the next of `copies` of the weights."""
        results = (ctypes.c_double * len(blockings))()
        product = _product(type, rows, depth, columns, blockings)
        limits = (ctypes.c_int(threads), ctypes.c_int64(copies), ctypes.c_double(seconds))
        self._call("ortisan_time_products", self._handle, ctypes.byref(product), *limits, results)
        return list(results)

    def _call(self, function: str, *arguments: Any) -> None:
        sentence = ctypes.create_string_buffer(200)
        outcome = getattr(self._library, function)(*arguments, sentence, ctypes.c_size_t(len(sentence)))
        if outcome == _NO_MEMORY:
            raise MemoryError("there is no memory for the product that is to be timed")
        if outcome:
            raise ValueError(sentence.value.decode())


def _product(type_: str, rows: int, depth: int, columns: Sequence[int], blockings: Sequence[Numbers]) -> _Product:
    numbers = [int(number) for blocking in blockings for number in blocking]
    return _Product(
        type_.encode(),
        rows,
        depth,
        (ctypes.c_int64 * len(columns))(*columns),
        len(columns),
        (ctypes.c_int64 * len(numbers))(*numbers),
        len(blockings),
    )
