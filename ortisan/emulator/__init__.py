"""Executes CUDA kernels on the CPU, out of their PTX: docs/emulator.md.

It knows nothing of models: `translate` makes a program of PTX, `open_device` the machine that runs it.
"""

from ortisan.emulator.device import ALL_CHECKS, BOUNDS, RACES, UNINITIALIZED, Counters, Device, open_device
from ortisan.emulator.library import build_emulator
from ortisan.emulator.program import translate
from ortisan.emulator.syntax import PtxError

__all__ = [
    "ALL_CHECKS", "BOUNDS", "RACES", "UNINITIALIZED", "Counters", "Device", "PtxError", "build_emulator", "open_device",
    "translate",
]  # fmt: skip
