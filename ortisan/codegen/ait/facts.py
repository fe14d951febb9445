"""What the manifest of a GPU artifact tells beyond that of a CPU artifact."""

from __future__ import annotations

import platform
from typing import Any

from ortisan.codegen.ait.detect import find_aitemplate
from ortisan.codegen.tools.cuda import find_cuda
from ortisan.pipeline.compilation import Compilation

NOT_PROFILED = (
    "not profiled: a rule by size chose the tiles of matrix products, because no GPU was there to time them on"
)


def describe_gpu(compiled: Compilation, *, built: bool) -> dict[str, Any]:
    """Empty for CPU targets. `built` tells whether nvcc has built the library, and not only its sources written."""
    if not compiled.target.is_gpu:
        return {}
    install = find_aitemplate()
    profiled = all(model.profiled for model in compiled.ait_models)
    return {
        "machine": platform.machine(),
        "cuda": find_cuda().version if built else None,
        "aitemplate": {"version": install.version, "commit": install.commit or None},
        "profiled": profiled,
        "warnings": [] if profiled else [NOT_PROFILED],
    }
