"""What tuning knows of the machine: its CPU, the cores this process may use, and the size of its last cache."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

_NAMING = ("vendor_id", "cpu family", "model", "model name", "stepping", "cache size", "CPU implementer", "CPU part")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNKNOWN_CACHE = 32 << 20


@dataclass(frozen=True)
class Machine:
    """`cpu` names the model as exactly as the machine does; `threads` are the cores that this process may use."""

    cpu: str
    threads: int
    last_cache_bytes: int


def this_machine() -> Machine:
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(cpu_model(), threads, _last_cache_bytes())


def cpu_model(cpuinfo: str | None = None) -> str:
    """The model of the first CPU; `cpuinfo` replaces the text of /proc/cpuinfo."""
    if cpuinfo is None:
        try:
            cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            cpuinfo = ""
    facts: dict[str, str] = {}
    for line in cpuinfo.partition("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    named = ", ".join(f"{key} {facts[key]}" for key in _NAMING if facts.get(key))
    return named or platform.processor() or platform.machine()


def _last_cache_bytes(folder: Path = _CACHES) -> int:
    sizes = [_cache_bytes(path) for path in folder.glob("index*/size")]
    return max(sizes, default=0) or _UNKNOWN_CACHE


def _cache_bytes(path: Path) -> int:
    try:
        match = re.fullmatch(r"(\d+)([KMG]?)", path.read_text(encoding="utf-8").strip())
    except OSError:
        return 0
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] if match else 0
