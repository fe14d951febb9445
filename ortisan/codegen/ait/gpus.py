"""The GPUs of this machine: which can run code of an architecture, and on which its tiles can be timed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ortisan.codegen.tools.toolchain import gpu_architectures

_FAMILIES = {"75": range(75, 80), "80": range(80, 90), "90": range(90, 100)}
"""Architecture -> the capabilities of the GPUs that run its kernels as they are."""


def timing_gpus(architecture: str, environ: Mapping[str, str] | None = None) -> tuple[int, ...]:
    """The places, in the driver's order, of the visible GPUs whose times say something about an architecture."""
    visible = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    chosen = None if visible is None else [word.strip() for word in visible.split(",")]
    family = _FAMILIES[architecture]
    return tuple(
        place
        for place, found in enumerate(gpu_architectures())
        if found.isdigit() and int(found) in family and (chosen is None or str(place) in chosen)
    )


def why_not_run(architectures: Sequence[str]) -> str | None:
    """Why code for these can't run here: each holds PTX, which newer GPUs compile. None when a GPU can run it."""
    found = gpu_architectures()
    if not found:
        return "this machine has no GPU"
    oldest = min(int(architecture) for architecture in architectures)
    if any(capability.isdigit() and int(capability) >= oldest for capability in found):
        return None
    return f"this machine's GPU (sm_{', sm_'.join(dict.fromkeys(found))}) can't run code for sm_{oldest}"


def why_not_timed(architecture: str) -> str:
    """Why tiles for an architecture are not timed here, although the driver may list GPUs."""
    found = gpu_architectures()
    if not found:
        return "no GPU was there to time them on"
    return (
        f"no visible GPU here is of sm_{architecture}'s kind (the driver lists sm_{', sm_'.join(dict.fromkeys(found))})"
    )
