"""The instruction sets a library can be built for, and which of them this machine has.

A row of the table is everything the build and the run-time check need to know about a level. Features carry the names
of /proc/cpuinfo's x86 `flags`; `templates/cpu/glue/cpu_features.h` looks the same names up with CPUID.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from ortisan.errors import OptionError, ToolchainError


@dataclass(frozen=True)
class Isa:
    """One target: `machine` is what compilers call the architecture, `features` is what the CPU must have."""

    name: str
    machine: str
    flags: tuple[str, ...]
    features: tuple[str, ...]


# Single features, not -march=x86-64-v3: every compiler and release spells these alike.
_V2_FLAGS = ("-msse4.2", "-mpopcnt", "-mcx16", "-msahf")
_V3_FLAGS = (*_V2_FLAGS, "-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mlzcnt", "-mmovbe")
_V4_FLAGS = (*_V3_FLAGS, "-mavx512f", "-mavx512bw", "-mavx512cd", "-mavx512dq", "-mavx512vl")

_V2 = ("pni", "ssse3", "sse4_1", "sse4_2", "popcnt", "cx16", "lahf_lm")
_V3 = (*_V2, "avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

_VNNI_FLAGS, _VNNI = ("-mavx512vnni",), ("avx512_vnni",)

ISAS: dict[str, Isa] = {
    isa.name: isa
    for isa in (
        Isa("x86-64-v2", "x86_64", _V2_FLAGS, _V2),
        Isa("x86-64-v3", "x86_64", _V3_FLAGS, _V3),
        Isa("x86-64-v4", "x86_64", _V4_FLAGS, _V4),
        Isa("x86-64-v4+vnni", "x86_64", (*_V4_FLAGS, *_VNNI_FLAGS), (*_V4, *_VNNI)),
        Isa("x86-64-v4+bf16+vnni", "x86_64", (*_V4_FLAGS, "-mavx512bf16", *_VNNI_FLAGS), (*_V4, "avx512_bf16", *_VNNI)),
        Isa("aarch64", "aarch64", (), ()),
    )
}


CPUS = {
    "haswell": "x86-64-v3",
    "alderlake": "x86-64-v3",
    "zen3": "x86-64-v3",
    "skylake-avx512": "x86-64-v4",
    "cascadelake": "x86-64-v4+vnni",
    "icelake-server": "x86-64-v4+vnni",
    "cooperlake": "x86-64-v4+bf16+vnni",
    "sapphirerapids": "x86-64-v4+bf16+vnni",
    "zen4": "x86-64-v4+bf16+vnni",
    "zen5": "x86-64-v4+bf16+vnni",
    "graviton2": "aarch64",
    "graviton3": "aarch64",
}
"""The row that a kind of CPU runs."""


def find_isa(name: str) -> Isa:
    """The row called `name`, or of the kind of CPU called so; "native" is the best one that this machine runs."""
    if name == "native":
        return native_isa(platform.machine(), cpu_features())
    name = CPUS.get(name, name)
    if name not in ISAS:
        raise OptionError(
            f"There is no CPU target '{name}'; the targets are native, {', '.join(ISAS)} and, for kinds of CPUs, "
            f"{', '.join(CPUS)}, written as 'cpu:x86-64-v3'."
        )
    return ISAS[name]


def native_isa(machine: str, features: frozenset[str]) -> Isa:
    """The last row of the table that a machine with these features runs."""
    fitting = [isa for isa in ISAS.values() if isa.machine == machine and features.issuperset(isa.features)]
    if not fitting:
        raise ToolchainError(
            f"This machine's CPU ({machine}) runs none of the targets {', '.join(ISAS)}, "
            "so nothing can be built for it; name the target of the serving machine instead."
        )
    return fitting[-1]


def missing_features(isa: Isa) -> tuple[str, ...]:
    """What this machine lacks to run code built for `isa`; the architecture itself when that differs."""
    if platform.machine() != isa.machine:
        return (isa.machine,)
    present = cpu_features()
    return tuple(feature for feature in isa.features if feature not in present)


def why_not_run(isa: Isa) -> str | None:
    """Why code built for `isa` can't run on this machine, in a few words; None when it can."""
    if platform.machine() != isa.machine:
        return f"this machine is not {isa.machine}"
    missing = missing_features(isa)
    return f"this machine lacks {', '.join(missing)}" if missing else None


def cpu_features(cpuinfo: str | None = None) -> frozenset[str]:
    """The feature names of this machine's first CPU; `cpuinfo` replaces the text of /proc/cpuinfo."""
    if cpuinfo is None:
        try:
            cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return frozenset()
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()
