"""What a run asks of a GPU: launches and bytes, each kernel for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class KernelWork:
    """What a kernel did in a run. Bytes are those that its instructions name, before any cache."""

    kernel: str
    """Its name without most of its template's arguments."""
    symbol: str
    """Its mangled name."""
    launches: int
    blocks: int
    instructions: int
    """Of warps."""
    loaded: int
    """Bytes of global memory."""
    stored: int


@dataclass(frozen=True)
class Work:
    """What a run did on one set of inputs."""

    case: str
    kernels: tuple[KernelWork, ...]

    @property
    def launches(self) -> int:
        return sum(kernel.launches for kernel in self.kernels)

    @property
    def loaded(self) -> int:
        return sum(kernel.loaded for kernel in self.kernels)

    @property
    def stored(self) -> int:
        return sum(kernel.stored for kernel in self.kernels)

    def to_json(self) -> dict[str, Any]:
        sums = {"launches": self.launches, "loaded": self.loaded, "stored": self.stored}
        return {"case": self.case, **sums, "kernels": [asdict(kernel) for kernel in self.kernels]}


def largest(works: Sequence[Work]) -> Work:
    """The run that moved most."""
    return max(works, key=lambda work: work.loaded + work.stored)
