"""The machine in this process: programs are loaded, memory is told, kernels are launched."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ortisan.codegen.tools.cmake import library_file
from ortisan.emulator.library import NAME, build_emulator
from ortisan.emulator.program import translate
from ortisan.errors import EmulationError

BOUNDS, UNINITIALIZED, RACES = 1, 2, 4
ALL_CHECKS = BOUNDS | UNINITIALIZED | RACES

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Counters:
    """What was done since the library was loaded, or the counters were reset."""

    launches: int
    blocks: int
    instructions: int
    """Of warps."""
    matrix_products: int
    """mma instructions of warps."""
    global_load_bytes: int
    global_store_bytes: int


class _Counters(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in Counters.__dataclass_fields__)


class Device:
    """One per process: allocations, programs and settings are shared by all that use the library."""

    def __init__(self, folder: Path) -> None:
        self._programs: Sequence[str] | None = None
        self._library = library = ctypes.CDLL(str(folder / library_file(NAME)), mode=ctypes.RTLD_GLOBAL)
        library.ortisan_emulator_error.restype = ctypes.c_char_p
        library.ortisan_emulator_variable.restype = ctypes.c_void_p
        library.ortisan_emulator_allocate.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        library.ortisan_emulator_release.argtypes = [ctypes.c_void_p]
        library.ortisan_emulator_launch.argtypes = [
            ctypes.c_char_p,
            *[ctypes.c_void_p] * 2,
            ctypes.c_size_t,
            ctypes.c_void_p,
        ]

    def load(self, ptx: str) -> None:
        """Translates PTX and takes its kernels and variables."""
        self.load_program(translate(ptx))

    def load_program(self, program: str) -> None:
        self._check(self._library.ortisan_emulator_load(program.encode()))

    def use(self, programs: Sequence[str]) -> None:
        """Has the kernels of these programs, the results of `translate`, and no others."""
        if programs is not self._programs:
            self.forget()
            for program in programs:
                self.load_program(program)
            self._programs = programs

    def forget(self) -> None:
        """Takes back all kernels, so that others of the same names can be loaded."""
        self._library.ortisan_emulator_forget()
        self._programs = None

    def launch(self, kernel: str, grid: Sequence[int], block: Sequence[int], *arguments: Any, shared: int = 0) -> None:
        """Runs a kernel to its end. Arguments are arrays, which are memory of the device meanwhile, and numpy scalars.

        An `EmulationError` has the kernel, line, block and thread that failed, and why.
        """
        arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
        values = [_value(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * max(len(values), 1))(*(value.ctypes.data for value in values))
        with self.memory(*arrays):
            code = self._library.ortisan_emulator_launch(kernel.encode(), _three(grid), _three(block), shared, pointers)
        self._check(code)

    @contextmanager
    def memory(self, *arrays: Array) -> Iterator[None]:
        """Inside, these arrays are live memory."""
        for array in arrays:
            self._library.ortisan_emulator_allocate(array.ctypes.data, array.nbytes, int(not array.flags.writeable))
        try:
            yield
        finally:
            for array in arrays:
                self._library.ortisan_emulator_release(array.ctypes.data)

    def variable(self, name: str) -> Array:
        """The bytes of a .global or .const variable, to read and to write."""
        size = ctypes.c_size_t()
        at = self._library.ortisan_emulator_variable(name.encode(), ctypes.byref(size))
        if not at:
            raise EmulationError(f"No program has the variable {name}.")
        return np.ctypeslib.as_array((ctypes.c_uint8 * size.value).from_address(at))

    @contextmanager
    def checking(self, checks: int) -> Iterator[None]:
        """Inside, only these checks are made; all are outside."""
        self._library.ortisan_emulator_check(checks)
        try:
            yield
        finally:
            self._library.ortisan_emulator_check(ALL_CHECKS)

    def use_threads(self, threads: int) -> None:
        """The threads that blocks are spread over; 0: as many as there are CPUs."""
        self._library.ortisan_emulator_use_threads(threads)

    def counters(self) -> Counters:
        found = _Counters()
        self._library.ortisan_emulator_count(ctypes.byref(found))
        return _counters(found)

    def kernel_counters(self) -> dict[str, tuple[str, Counters]]:
        """What each kernel did, by its name, beside a short name; in the order of first launches."""
        kernels: dict[str, tuple[str, Counters]] = {}
        name, readable, found = ctypes.c_char_p(), ctypes.c_char_p(), _Counters()
        places = (ctypes.byref(name), ctypes.byref(readable), ctypes.byref(found))
        while self._library.ortisan_emulator_count_kernel(ctypes.c_size_t(len(kernels)), *places) == 0:
            kernels[(name.value or b"").decode()] = ((readable.value or b"").decode(), _counters(found))
        return kernels

    def reset_counters(self) -> None:
        self._library.ortisan_emulator_reset_counters()

    def _check(self, code: int) -> None:
        if code != 0:
            raise EmulationError(self._library.ortisan_emulator_error().decode(errors="replace"))


@functools.cache
def _open(folder: Path) -> Device:
    return Device(folder)


def open_device(on_progress: Callable[[str], None] | None = None) -> Device:
    """The machine, which is built the first time on each computer."""
    return _open(build_emulator(on_progress))


def _counters(found: _Counters) -> Counters:
    return Counters(*(getattr(found, name) for name in Counters.__dataclass_fields__))


def _value(argument: Any) -> Array:
    """The bytes of a parameter."""
    if isinstance(argument, np.ndarray):
        return np.array([argument.ctypes.data], np.uint64)
    return np.array([argument])


def _three(sizes: Sequence[int]) -> ctypes.Array[ctypes.c_uint]:
    return (ctypes.c_uint * 3)(*sizes, *([1] * (3 - len(sizes))))
