"""Shared libraries of another architecture, called through an emulated process (remote.cpp) as ctypes calls our own."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ortisan.codegen.cpu.isa import Isa
from ortisan.codegen.tools.toolchain import Compiler


class Pointer:
    """An array as an argument: ctypes passes its address, a `RemoteLibrary` its elements, there and back."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self._as_parameter_ = ctypes.c_void_p(array.ctypes.data)

    def span(self) -> tuple[int, int]:
        """The bytes that hold the elements: how far before the first one they begin, and their number."""
        if self.array.size == 0:
            return 0, 0
        reach = [(size - 1) * stride for size, stride in zip(self.array.shape, self.array.strides, strict=True)]
        before = -sum(r for r in reach if r < 0)
        return before, before + sum(r for r in reach if r > 0) + self.array.itemsize


def argument(value: Any) -> Any:
    """What is passed for an array or a number."""
    if isinstance(value, np.ndarray):
        return Pointer(value)
    return ctypes.c_int64(value) if isinstance(value, (int, np.integer)) else value


def call(function: Any, *arguments: Any) -> Any:
    return function(*map(argument, arguments))


def emulator(isa: Isa, compiler: Compiler) -> list[str]:
    """The command before a program of the machine; the test is skipped when this machine has none."""
    program = shutil.which(f"qemu-{isa.machine}-static") or shutil.which(f"qemu-{isa.machine}")
    if program is None:
        pytest.skip(
            f"no emulator of {isa.machine}: neither qemu-{isa.machine}-static nor qemu-{isa.machine} is on PATH"
        )
    found = subprocess.run([*compiler.argv, "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True)
    libc = Path(found.stdout.strip()).resolve()
    if not libc.is_file():
        pytest.skip(f"{compiler.argv[0]} has no C library for {isa.machine} to run programs with")
    return [program, "-L", str(libc.parent.parent)]


class RemoteLibrary:
    """`library.name(...)` calls a function of the library inside the process that `command` starts."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._functions: dict[str, _Function] = {}

    def __getattr__(self, name: str) -> _Function:
        return self._functions.setdefault(name, _Function(self, name))

    def close(self) -> None:
        self._process.communicate()

    def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def receive(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        assert len(data) == size, f"the process ended with {self._process.wait()}"
        return data


class _Function:
    def __init__(self, library: RemoteLibrary, name: str) -> None:
        self._library, self._name = library, name
        self.restype: Any = ctypes.c_int

    def __call__(self, *arguments: Any) -> Any:
        wants_text = self.restype is ctypes.c_char_p
        blocks: list[tuple[int | None, int]] = []
        head = _integers(len(self._name)) + self._name.encode() + _integers(wants_text, len(arguments))
        self._library.send(head + b"".join(_encoded(argument, blocks) for argument in arguments))
        (result,) = struct.unpack("q", self._library.receive(8))
        text = self._library.receive(struct.unpack("q", self._library.receive(8))[0]) if wants_text else b""
        for address, size in blocks:
            data = self._library.receive(size)
            if address is not None:
                ctypes.memmove(address, data, size)
        if wants_text:
            return text if result else None
        return self.restype(result).value


def _integers(*values: int) -> bytes:
    return struct.pack(f"{len(values)}q", *values)


def _encoded(argument: Any, blocks: list[tuple[int | None, int]]) -> bytes:
    """One argument as remote.cpp reads it. A block's size joins `blocks`, with the address it comes back to, if any."""
    if isinstance(argument, bytes):
        blocks.append((None, len(argument) + 1))
        return _integers(ord("b"), 0, len(argument) + 1) + argument + b"\0"
    if isinstance(argument, Pointer):
        before, size = argument.span()
        return _block(argument.array.ctypes.data - before, before, size, blocks)
    if isinstance(argument, (ctypes.c_float, ctypes.c_double)):
        return _integers(ord("f")) + bytes(argument).ljust(8, b"\0")
    if hasattr(argument, "_obj"):  # ctypes.byref
        return _block(ctypes.addressof(argument._obj), 0, ctypes.sizeof(argument._obj), blocks)
    value = argument if isinstance(argument, int) else argument.value
    return _integers(ord("i"), value or 0)


def _block(address: int, offset: int, size: int, blocks: list[tuple[int | None, int]]) -> bytes:
    blocks.append((address, size))
    return _integers(ord("b"), offset, size) + ctypes.string_at(address, size)
