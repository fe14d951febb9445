"""The test functions of the stand-in CUDA runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager


class StandIn:
    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.stand_in_calls.restype = ctypes.c_int64
        library.stand_in_fail.argtypes = [ctypes.c_char_p, ctypes.c_int64]
        library.stand_in_launch.argtypes = [ctypes.c_int64, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]

    def calls(self, function: str) -> int:
        """How often a function was called; "launch" counts kernels."""
        return int(self._library.stand_in_calls(function.encode()))

    @contextmanager
    def failing(self, function: str, after: int = 0) -> Iterator[None]:
        """Inside, the call number `after` (from 0) of a function fails once, for lack of memory."""
        self._library.stand_in_fail(function.encode(), after)
        try:
            yield
        finally:
            self._library.stand_in_fail(b"", 0)

    @contextmanager
    def host_memory(self) -> Iterator[None]:
        """Inside, all memory is said to be the host's."""
        self._library.stand_in_host_memory(1)
        try:
            yield
        finally:
            self._library.stand_in_host_memory(0)

    @contextmanager
    def device(self, number: int) -> Iterator[None]:
        """Inside, this thread's current device is another one."""
        self._library.stand_in_use_device(number)
        try:
            yield
        finally:
            self._library.stand_in_use_device(0)

    @property
    def current_device(self) -> int:
        return int(self._library.stand_in_device())

    @property
    def launches_on_other_devices(self) -> int:
        """Kernels that this thread launched while another device than 0 was current."""
        return int(self._library.stand_in_launches_on_other_devices())

    def launch(self, ago: int) -> tuple[str, list[int]]:
        """The kernel and the first arguments of a launch, counted back from the last."""
        name, arguments = ctypes.create_string_buffer(400), (ctypes.c_uint64 * 4)()
        assert self._library.stand_in_launch(ago, name, len(name), arguments)
        return name.value.decode(), list(arguments)
