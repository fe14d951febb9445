"""Digests memory at about the speed it is read with, in a library of its own, built once and cached after."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ortisan.codegen.cpu.build import build_library
from ortisan.codegen.cpu.isa import Isa
from ortisan.codegen.render import plain_files, render
from ortisan.codegen.tools.cmake import KERNEL_FLAGS
from ortisan.errors import ToolchainError

_NAME = "ortisan_digest"
DIGEST_BYTES = 16


@dataclass(frozen=True)
class DigestSource:
    library: str
    isa: str
    flags: tuple[str, ...]


def render_digest(isa: Isa) -> dict[str, str]:
    """The sources of the library, file name -> content."""
    flags = tuple(flag for flag in (*isa.flags, *KERNEL_FLAGS) if flag not in ("-fno-exceptions", "-fno-rtti"))
    project = render("cmake/content.CMakeLists.txt.j2", DigestSource(_NAME, isa.name, flags))
    return {**plain_files("content"), "CMakeLists.txt": project}


@functools.cache
def load_digest(isa: Isa) -> BuiltDigest:
    """A `ToolchainError` says why the library can't be built or loaded."""
    return BuiltDigest(build_library(render_digest(isa), name=_NAME, isa=isa).library)


class BuiltDigest:
    """The function of templates/content/digest.cpp."""

    def __init__(self, library: Path) -> None:
        try:
            self._function: Any = ctypes.CDLL(str(library)).ortisan_digest
        except OSError as error:
            raise ToolchainError(f"'{library}' can't be loaded: {error}") from error
        pointer = ctypes.c_void_p
        self._function.argtypes = [pointer, pointer, ctypes.c_int64, ctypes.c_int, pointer]
        self._function.restype = None

    def prepare(self, sizes: Sequence[int]) -> Callable[[Sequence[int], int], bytes]:
        """Digests of memory of these sizes: a function of the addresses and a number of threads.

        It gives `DIGEST_BYTES` for each address; the caller keeps the memory alive.
        """
        count = len(sizes)
        places_of, words_of = ctypes.c_void_p * count, ctypes.c_uint64 * (DIGEST_BYTES // 8 * count)
        lengths, function = (ctypes.c_int64 * count)(*sizes), self._function

        def digest(places: Sequence[int], threads: int) -> bytes:
            words = words_of()
            function(places_of(*places), lengths, count, threads, words)
            return bytes(words)

        return digest
