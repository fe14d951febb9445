"""The execution providers of ONNX Runtime that an artifact needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ortisan.errors import ArtifactError
from ortisan.runtime.engine import onnxruntime

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"


def needs_cuda(target: str) -> bool:
    return target.partition(":")[0] == "cuda"


def providers_for(target: str) -> tuple[str, ...]:
    """What a session of an artifact for this target is opened with; ONNX Runtime's own ops follow the custom ops."""
    return (CUDA, CPU) if needs_cuda(target) else (CPU,)


def why_no_cuda() -> str | None:
    """Why the installed ONNX Runtime can't run on a GPU; None when it can."""
    return None if CUDA in onnxruntime().get_available_providers() else f"this onnxruntime has no {CUDA}"


def check_providers(folder: object, manifest: Mapping[str, Any], chosen: Sequence[Any] | None) -> None:
    """Raises `ArtifactError` when a session of the artifact would lack its provider."""
    if not needs_cuda(str(manifest.get("target", ""))):
        return
    if why_no_cuda() is not None:
        raise ArtifactError(
            f"'{folder}' is for {manifest['target']}: install onnxruntime-gpu; this artifact needs {CUDA}, and the "
            f"installed onnxruntime {onnxruntime().__version__} does not have it"
        )
    names = [item if isinstance(item, str) else item[0] for item in chosen or (CUDA,)]
    if CUDA not in names:
        raise ArtifactError(f"'{folder}' is for {manifest['target']} and needs {CUDA}, which providers={names} lack")
