"""How much time and memory samples may take."""

from __future__ import annotations

import math
import os
from pathlib import Path

_FLOPS_PER_SECOND = 30e9
_BYTES_PER_SECOND = 4e9
_SECONDS_PER_NODE = 4e-6

CASES_SECONDS = 5.0
"""For all cases together, run by an ordinary core."""
TIMED_SECONDS = 0.3
CHEAP_SECONDS = 0.05
"""What is so cheap that larger sizes than usual can be had."""

_MEMORY_SHARE = 8
_MEMORY_IF_UNKNOWN = 4 << 30
_CGROUP = Path("/sys/fs/cgroup")


def seconds(flops: float, moved: float, nodes: int) -> float:
    """Estimates the time of a run: operations, bytes written, and calls."""
    return flops / _FLOPS_PER_SECOND + moved / _BYTES_PER_SECOND + nodes * _SECONDS_PER_NODE


def memory_limit() -> int:
    """The bytes that one sample may take: a part of what this machine or its container has free."""
    return int(min(_machine_bytes(), _container_bytes())) // _MEMORY_SHARE


def _machine_bytes() -> float:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float(_MEMORY_IF_UNKNOWN)


def _container_bytes() -> float:
    try:
        most = int((_CGROUP / "memory.max").read_text(encoding="ascii"))
        used = int((_CGROUP / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return math.inf
    return float(max(most - used, 0))
