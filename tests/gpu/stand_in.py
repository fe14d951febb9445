"""The CUDA runtime over host memory (templates/emulator/runtime), as tests use it without an emulator: kernels do nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    kernel: str
    arguments: tuple[int, ...]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int


class StandIn:
    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        library.ortisan_cuda_calls.restype = ctypes.c_int64
        library.ortisan_cuda_refusals.restype = ctypes.c_int64
        library.ortisan_cuda_fail.argtypes = [ctypes.c_char_p, ctypes.c_int64]
        library.ortisan_cuda_refusal.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        words = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
        library.ortisan_cuda_launch.argtypes = [ctypes.c_int64, ctypes.c_char_p, ctypes.c_size_t, *words]

    def calls(self, function: str) -> int:
        """How often a function was called; "launch" counts kernels."""
        return int(self.library.ortisan_cuda_calls(function.encode()))

    @contextmanager
    def failing(self, function: str, after: int = 0) -> Iterator[None]:
        """Inside, the call number `after` (from 0) of a function fails once, for lack of memory."""
        self.library.ortisan_cuda_fail(function.encode(), after)
        try:
            yield
        finally:
            self.library.ortisan_cuda_fail(b"", 0)

    @contextmanager
    def host_memory(self) -> Iterator[None]:
        """Inside, all memory is said to be the host's."""
        self.library.ortisan_cuda_host_memory(1)
        try:
            yield
        finally:
            self.library.ortisan_cuda_host_memory(0)

    @contextmanager
    def device(self, number: int) -> Iterator[None]:
        """Inside, this thread's current device is another one."""
        self.library.ortisan_cuda_use_device(number)
        try:
            yield
        finally:
            self.library.ortisan_cuda_use_device(0)

    @property
    def current_device(self) -> int:
        device = ctypes.c_int()
        self.library.cudaGetDevice(ctypes.byref(device))
        return device.value

    @property
    def launches_on_other_devices(self) -> int:
        """Kernels that this thread launched while another device than 0 was current."""
        return int(self.library.ortisan_cuda_launches_on_other_devices())

    @property
    def refusals(self) -> tuple[int, str]:
        """How many launches a driver would have refused, and the last of them."""
        text = ctypes.create_string_buffer(1000)
        self.library.ortisan_cuda_refusal(text, len(text))
        return int(self.library.ortisan_cuda_refusals()), text.value.decode()

    def launch(self, ago: int) -> Launch:
        """A launch, counted back from the last."""
        name, arguments, sizes = ctypes.create_string_buffer(400), (ctypes.c_uint64 * 4)(), (ctypes.c_uint64 * 7)()
        assert self.library.ortisan_cuda_launch(ago, name, len(name), arguments, 4, sizes)
        numbers = tuple(sizes)
        return Launch(name.value.decode(), tuple(arguments), numbers[:3], numbers[3:6], numbers[6])
